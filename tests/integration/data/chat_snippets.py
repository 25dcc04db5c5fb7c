"""Pieces of chat templates for cases_chat.py, each with one construct: rendered alike, or refused, by jinja2 and here."""

# Values that the snippets use.
VARIABLES = {
    "s": "Hello, World", "u": "Éa ß ΑΣ ǆ 日本\u2028x", "e": "", "w": "  a b\t\nc  ", "n": 7, "m": -3, "z": 0, "f": 2.5, "g": 1e22,
    "t": True, "x": None, "l": [3, 1, 2], "k": ["b", "A", "c", "a"], "d": {"b": 1, "a": "two", "c": [1, {"q": None}]},
    "o": [{"n": "x", "v": 1, "d": {"k": 1}}, {"n": "y", "v": 2, "d": {}}, {"n": "x", "v": 3}], "q": "it's \"q\" \\ \x00\x7f\n",
    "items": {"items": 1, "get": 2, "keys": 3}, "deep": [[1, [2, [3]]]], "big": 9007199254740993, "many": list(range(20)),
}  # fmt: skip

# Expressions; each is printed.
EXPRESSIONS = r"""
1 + 2 * 3 - 4
7 // 2
-7 // 2
7 % 3
-7 % 3
7 % -3
7.5 // 2
-7.5 % 2
2 ** 10
2 ** -1
2 ** 3 ** 2
-2 ** 2
1 / 2
4 / 2
1 / 0
1 % 0
1.0
1e16
123456789.125
0.0001
0.00001
1e-7
g
g * 10
big
big + 1
9223372036854775807
9223372036854775807 + 0
1_000
-m
+t
not x
n == 7.0
t == 1
'1' == 1
x == none
l == [3, 1, 2]
(1, 2) == [1, 2]
(1, 2)
(1,)
()
[]
{}
{'a': 1, 2: 'b', none: true, 1.5: [1]}
{1: 'a', true: 'b'}
1 < 2 < 3
1 < 3 < 2
3 > 2 >= 2 != 1
'a' < 'b'
'Z' < 'a'
[1, 2] < [1, 3]
1 < 'a'
x < 1
s in 'Hello, World!'
'lo' in s
1 in l
4 not in l
'a' in d
'a' in x
1 in 'a'
s and n
e and n
e or n
x or e or 'last'
not e and not z
'yes' if t else 'no'
'yes' if e else 'no'
'yes' if e
('yes' if e) is defined
1 if 2 if 0 else 3 else 4
s ~ n ~ f ~ x ~ t ~ l
s + 'x'
s + 1
s * 2
2 * s
l * 2
l + [4]
l + (4,)
s % 1
'a' 'b' "c"
'\n\t\x41\u00e9\U0001f600\101\d\\'
s[0]
s[-1]
s[99]
u[3]
s[1:4]
s[:-1]
s[::-1]
s[::2]
s[-3:]
s[5:2]
s[10:2:-3]
u[::-1]
u[2:5]
l[0]
l[-1]
l[3]
l[1:]
l[::-1]
l[::0]
many[3:15:4]
many[15:3:-4]
many[-100:100]
l['x']
l.0
d.a
d['a']
d.nope
d['nope']
d.c[1].q
d.c.1.q
x.y
x.y.z
nope
nope.y
nope['y']
nope.y.z
nope()
nope + 1
nope ~ 'a'
-nope
nope == nope
nope == x
nope in l
1 in nope
nope[1:]
items.items is defined
items['items']
items.items()
items.get('get')
items.keys()
items.values()
d.get('zz')
d.get('zz', 5)
d.get('a')
d.items()
d.items() | list
d.keys() | list
d.values() | list
d.items() | length
d.items()[0]
d.copy()
d.update({'a': 1})
d.pop('a')
l.append(4)
l.append is defined
l.index(1)
l.index(9)
l.count(1)
s.strip('Hd')
w.strip()
w.lstrip() ~ '|'
w.rstrip() ~ '|'
u.strip('É')
s.split()
w.split()
w.split(none, 1)
w.rsplit(none, 1)
w.split(' ')
s.split('o')
s.split('o', 1)
s.rsplit('o', 1)
s.split(sep='o', maxsplit=1)
s.split('')
'a,b,,c'.split(',')
'a\nb\r\nc\u2028d'.splitlines()
'a\nb\n'.splitlines(true)
s.startswith('Hell')
s.startswith(('x', 'H'))
s.startswith(['H'])
s.endswith('World')
s.upper()
s.lower()
u.upper()
u.lower()
u.title()
u.capitalize()
"they're o'neill's 3x".title()
s.replace('o', '0')
s.replace('o', '0', 1)
s.replace('', '-')
''.replace('', '-')
s.find('World')
u.find('日')
s.find('zz')
s.count('l')
s.count('')
','.join(k)
','.join(l)
''.join('abc')
s | upper
s | lower
u | upper
u | lower
u | title
'a-b (c) it\'s <d>e' | title
u | capitalize
w | trim
s | trim('Hd')
n | trim
s | replace('o', '0')
n | replace(7, 8)
s | length
u | length
l | count
d | length
n | length
nope | length
nope | default('d')
nope | d
x | default('d')
x | default('d', true)
e | default('d', boolean=true)
e | default('d')
l | first
l | last
[] | first
[] | first is defined
s | first
s | last
d | first
l | reverse | list
s | reverse
l | sort
l | sort(reverse=true)
k | sort
k | sort(case_sensitive=true)
o | sort(attribute='n')
o | sort(attribute='n,v', reverse=true)
['a', 1] | sort
d | dictsort
{'b': 1, 'A': 2, 'c': 0} | dictsort
{'b': 1, 'A': 2, 'c': 0} | dictsort(true)
{'b': 1, 'A': 2, 'c': 0} | dictsort(by='value')
{'b': 1, 'A': 2} | dictsort(false, 'key', true)
[1, 2, 1, 'a', 'A', none, none] | unique | list
o | unique(attribute='n') | map(attribute='v') | list
l | join
l | join('-')
o | join('-', attribute='n')
s | join('.')
l | list
s | list
d | list
d | items | list
nope | items | list
l | items | list
o | map(attribute='n') | list
o | map(attribute='d.k') | list
o | map(attribute='d.k', default='?') | list
k | map('upper') | list
k | map('replace', 'a', 'x') | list
o | selectattr('d') | list
o | selectattr('n', 'equalto', 'x') | map(attribute='v') | list
o | selectattr('v', '>', 1) | list | length
o | rejectattr('n', 'in', ['x']) | list
l | select('odd') | list
l | reject('odd') | list
[0, 1, '', 'a', none] | select | list
[0, 1, '', 'a', none] | reject | list
(o | selectattr('n')) is iterable
'yes' if (l | select('>', 99)) else 'no'
l | map('string') | length
l | min
l | max
k | max
[] | max
o | map(attribute='v') | sum
o | sum(attribute='v', start=10)
m | abs
'42' | int
' 42 ' | int
'4_2' | int
'42.7' | int
'abc' | int
'abc' | int(-1)
'0x1A' | int
f | int
x | int
t | int
nope | int
'1.5' | float
'abc' | float
n | float
n | string
x | string
l | string
d | string
q | list
[q]
[u]
['\xad\u200b\ue000\U0001f600é']
"it's"
["it's"]
['say "hi"']
d | tojson
u | tojson
u | tojson(ensure_ascii=true)
'😀' | tojson(true)
q | tojson
d | tojson(indent=2)
d | tojson(indent=0)
d | tojson(indent='-')
[] | tojson(indent=2)
{} | tojson(indent=2)
d | tojson(separators=(',', ':'))
d | tojson(sort_keys=true)
{1: 2, none: 3, true: 4, 1.5: 5} | tojson
(1, 2) | tojson
f | tojson
g | tojson
nope | tojson
[nope] | tojson
d.items() | tojson
s | indent
'a\nb\n\nc' | indent
'a\nb\n\nc' | indent(2, true)
'a\nb\n\nc' | indent('> ', first=true, blank=true)
'a\nb' | indent(width=1)
'<a>' | safe
('<a>' | safe) + '<b>'
'<b>' + ('<a>' | safe)
('<a>' | safe) ~ '<b>'
('<a>' | safe) is string
s is defined
nope is defined
nope is undefined
nope is not defined
x is none
s is string
n is string
d is mapping
l is mapping
l is iterable
n is iterable
nope is iterable
s is sequence
d is sequence
d.items() is sequence
n is number
t is number
n is integer
t is integer
f is float
t is boolean
t is true
n is true
z is false
n is odd
n is even
f is odd
n is divisibleby 7
n is divisibleby(2)
n is eq 7
n is equalto 7
n is ne 7
n is gt 6
n is lessthan 6
1 is in l
4 is not in l
x is sameas none
s.upper is callable
nope is callable
n is callable
range is callable
range(3) | list
range(1, 7, 2) | list
range(5, 0, -2) | list
range(3) | length
range(3)[1]
range(0)
range(200000) | length
dict(a=1, b=2)
dict({'a': 1}, b=2)
dict([('a', 1), ('b', 2)])
namespace(a=1).a
namespace(a=1, b='x')
namespace({'a': 1})['a']
namespace(a=1).b is defined
namespace(_a=1)
raise_exception('no: ' ~ n)
strftime_now('%Y-%m-%d %H:%M:%S %j %a %B %%')
deep
[[]] * 3
s.upper
l | map('upper')
u | length == u | list | length
l | nofilter
l is notest
s.zfill(3)
s.__class__
(s | length) is odd and n is odd
n | string ~ 's' | upper
not n is odd
- n | abs
l | length * 2
'%s' % s
1 if
1 +
(1
[1, 2
{'a' 1}
a b
""".strip("\n").split("\n")

# Statements and white space.
TEMPLATES = [
    "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.depth }};{% endfor %}",
    "{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }}{{ loop.previtem is defined }}{{ loop.nextitem is defined }} {% endfor %}",
    "{% for i in l if i > 1 %}{{ i }}{{ loop.index }}{{ loop.length }}{{ loop.last }}{% else %}none{% endfor %}",
    "{% for i in l if i > 9 %}{{ i }}{% else %}none{% endfor %}|{% for i in nope %}x{% else %}empty{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for i in many if ns.n < 5 %}{{ i }}{% set ns.n = ns.n + 2 %}{% endfor %}{{ ns.n }}",
    "{% set ns = namespace(n=0) %}{% for i in many if ns.n < 5 %}{{ i }}{{ loop.last }}{% set ns.n = ns.n + 2 %}{% endfor %}{{ ns.n }}",
    "{% for a, b in d.items() %}{{ a }}={{ b }};{% endfor %}{% for a, b in d | dictsort %}{{ loop.index }}{{ a }}{% endfor %}",
    "{% for a, b in [[1, 2, 3]] %}{{ a }}{% endfor %}",
    "{% for (a, (b, c)) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for i in many %}{% if i == 3 %}{% continue %}{% endif %}{% if i > 6 %}{% break %}{% endif %}{{ i }}{% else %}no{% endfor %}",
    "{% for i in l %}{% for j in k %}{{ loop.index }}{% endfor %}{{ loop.index }},{% endfor %}",
    "{% for i in l %}{% set y = i %}{% if loop.first %}{% set z = 5 %}{% endif %}{{ y }}{{ z }}{% endfor %}{{ y }}|{{ z }}",
    "{% set y = 1 %}{% for i in l %}{% set y = y + i %}{{ y }}{% endfor %}{{ y }}",
    "{% set y = 1 %}{% if true %}{% set y = 2 %}{% endif %}{{ y }}{% if false %}{% set s = 2 %}{% endif %}{{ s }}",
    "{% for c in s %}{{ c }}.{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for i in n %}{% endfor %}",
    "{% for i in x %}{% endfor %}",
    "{% for i in l recursive %}{{ i }}{% endfor %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set a, b = b, a %}{{ a }}{{ b }}{% set t = 1, %}{{ t }}",
    "{% set ns = namespace(a=1) %}{% set ns.b, c = 2, 3 %}{{ ns.a }}{{ ns.b }}{{ c }}{% set ns._x = 1 %}",
    "{% set d.a = 1 %}{{ d }}",
    "{% set nope.a = 1 %}",
    "{% set b %} x {{ n }}\n{% endset %}[{{ b }}]{% set b | trim | upper %} x {{ s }} {% endset %}[{{ b }}]",
    "{% set b %}{% set n = 99 %}{{ n }}{% endset %}{{ b }}{{ n }}",
    "{% macro f(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ f(1) }}{{ f(1, 3) }}{{ f(b=5, a=4) }}{{ f() }}{{ f(1, c=none) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=2) }}",
    "{% macro f(a) %}{{ a is defined }}{{ n }}{{ later }}{% set n = 1 %}{% endmacro %}{% set later = 'L' %}{{ f() }}{{ n }}{{ f(1) | length }}",
    "{% macro f(i) %}{{ i }}{% if i > 0 %}{{ f(i - 1) }}{% endif %}{% endmacro %}{{ f(20) }}",
    "{% macro f(i) %}{{ f(i + 1) }}{% endmacro %}{{ f(0) }}",
    "{% macro f() %}[{{ caller(1) }}{{ caller(2) }}]{% endmacro %}{% call(i) f() %}{{ i }}{{ n }}{% endcall %}",
    "{% macro f() %}[{{ caller() }}]{% endmacro %}{{ f() }}",
    "{% macro f() %}x{% endmacro %}{% call f() %}{% endcall %}",
    "{% macro f(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ f(*[1, 2]) }}{{ f(**{'a': 3, 'b': 4}) }}{{ f(1, *[2]) }}{{ f(*[5], b=6) }}",
    "{% macro f() %}{{ varargs }}{% endmacro %}{{ f(1) }}",
    "{% set ms = [] %}{% macro f(a) %}<{{ a }}>{% endmacro %}{% set ms = ms + [f] %}{{ ms[0](5) }}{% set ns = namespace(f=f) %}{{ ns.f(6) }}",
    "{% filter upper | replace('A', '4') %}abc {{ s }}{% endfilter %}",
    "{% with a = 1, b = n %}{{ a }}{{ b }}{% set a = 2 %}{{ a }}{% endwith %}{{ a }}",
    "{% with n = 1, b = n %}{{ b }}{% endwith %}",
    "{% if n > 9 %}a{% elif n > 8 %}b{% elif n > 6 %}c{% else %}d{% endif %}",
    "{% if n > 9: %}a{% else: %}b{% endif %}",
    "{% raw %}{{ n }} {% if %} {# c #}{% endraw %}|{%- raw -%}  {{ x }}  {%- endraw -%}  |",
    "a\n  {% raw %}\n b {{ }}\n  {% endraw %}\nc",
    "a {# comment {{ n }} #} b\n  {# line #}\nc {#- x -#} d",
    "  {% if true %}\n  x\n  {% endif %}\n  y {% if true %} z {% endif %}\nw",
    "  {%+ if true %}\n  x\n  {%+ endif +%}\n  y",
    "  {%- if true -%}\n  x\n  {%- endif -%}\n  y",
    "a\n\n {{- n }} \n {{ n -}} \n b {{- ' ' -}} c",
    "a\n{{ n }}\nb\n{% if true %}\n{% endif %}\n\nc\n\n",
    "\t {% set v = 1 %}\t\n x {% set v = 1 %} \n",
    "{{ n }}\r\nx\r{% if true %}\r\ny{% endif %}\n",
    "{{ '}}' }}{{ {'a': {'b': 1}} }}{{ {'a': {'b': 1}}['a']['b'] }}",
    "{{ '{% x %}' }}{{ \"{{\" }}{{ '#}' }}",
    "{{ }}",
    "{% %}",
    "{{ n",
    "{% if n %}",
    "{% endif %}",
    "{% if n %}{% endfor %}",
    "{% for %}{% endfor %}",
    "{# open",
    "{% raw %}open",
    "{{ 'open }}",
    "{{ n } }}",
    "{{ [1) }}",
    "{% unknown %}",
    "{% include 'x' %}",
    "{% import 'x' as y %}",
    "{% extends 'x' %}",
    "{% break %}",
    "{% set loop = 1 %}",
    "{% set true = 1 %}",
    "{% for loop in l %}{% endfor %}",
    "{{ loop }}",
    "{{ loop is defined }}{% for i in l %}{{ loop is defined }}{% endfor %}",
    "{% generation %}a{% endgeneration %}é{% for i in l %}{% generation %}{{ i }}b\n{% endgeneration %}\n.{% endfor %}",
    "{% generation %}{% set n = 1 %}{{ n }}{% endgeneration %}{{ n }}",
    "{% for i in l %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
    "{%- generation -%} x {%- endgeneration -%} y",
    "{{ messages[0].content }}{{ messages | length }}{{ tools }}{{ documents }}{{ add_generation_prompt }}",
    "{% set messages = messages + [{'role': 'x'}] %}{{ messages[-1].role }}{{ messages | last }}",
    "{% set x = {'a': [1, 2, {'b': s}]} %}{{ x }}{{ x.a[2].b }}",
    "é{{ 'ü' }}{% if true %}ö{% endif %}\u00a0{%- if true %} \u2003{%- endif %}",
    "",
    "\n",
    "plain { text } % # {",
]
