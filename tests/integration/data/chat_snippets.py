"""Expressions of chat templates for cases_chat.py, each with one construct."""

# Values that the expressions and the templates of chat_statements.py use.
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
