"""Makes tokenizers and texts for the tokenizer cases, trained and made up on the spot; nothing is downloaded."""
import json
import random

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
QWEN = LLAMA3.replace("{1,3}", "")
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# Lines for the trainer besides the corpus, so that there are merges in characters of several bytes.
LANGUAGES = [
    "Die Würde des Menschen ist unantastbar. Größe, Straße, Äpfel; naïve façade déjà-vu coöperate.",
    "Быстрая коричневая лиса перепрыгивает через ленивую собаку, съешь ещё этих мягких булок.",
    "すべての人間は、生まれながらにして自由であり、ガギグゲゴ パピプペポ、尊厳と権利とについて平等である。",
    "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。",
    "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
    "يولد جميع الناس أحراراً متساوين في الكرامة والحقوق. ١٢٣٤٥٦٧٨٩٠",
    "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם.",
    "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है। १२३४",
    "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi.",
    "👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈 🇩🇪🇫🇷 ❤️ 1️⃣ 🧑🏿‍🚀 😀😃😄",
]

SPECIAL = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]
# Tokens with every kind of option, special or not, found in raw or in normalized text.
ODD_TOKENS = [
    AddedToken("<tool>", lstrip=True, normalized=False),
    AddedToken("</tool>", rstrip=True, normalized=False, special=True),
    AddedToken("word", single_word=True, normalized=False),
    AddedToken("caf\u00e9s", normalized=True),
    AddedToken("cafe\u0301ine", normalized=True),
    AddedToken("<tool>s", normalized=False),
    AddedToken("\u7279\u6b8a", single_word=True, lstrip=True, rstrip=True),
]


def train(folder, lines, pattern, vocab_size, *, nfc=False, add_prefix_space=False, odd=False, **model):
    """Trains a byte-level BPE tokenizer in the new `folder`; `pattern` None is GPT-2's, which ByteLevel brings."""
    tokenizer = Tokenizer(models.BPE(**model))
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=pattern is None)
    if pattern is None:
        tokenizer.pre_tokenizer = byte_level
    else:
        split = pre_tokenizers.Split(Regex(pattern), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>"],
    )
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.add_special_tokens(SPECIAL)
    if odd:
        tokenizer.add_tokens(ODD_TOKENS)
    folder.mkdir(parents=True)
    return tokenizer


def template(tokenizer, before, after=()):
    """Returns the post-processor of Llama 3's file, which puts tokens around the text."""
    single = [*before, "$A", *after]
    names = {name: tokenizer.token_to_id(name) for name in (*before, *after)}
    return processors.Sequence(
        [processors.ByteLevel(trim_offsets=True), processors.TemplateProcessing(single=single, special_tokens=list(names.items()))]
    )


def make_tokenizer(kind, folder, lines, vocab_size=4000):
    """Writes tokenizer.json and tokenizer_config.json of one of KINDS."""
    config = {"bos_token": SPECIAL[0], "eos_token": {"content": SPECIAL[1], "special": True, "normalized": False}}
    if kind == "llama3":
        tokenizer = train(folder, lines, LLAMA3, vocab_size, ignore_merges=True)
        # Removes merges, so that no merges make some words, as in Llama 3's vocabulary.
        tokenizer = with_model(tokenizer, lambda model: model["merges"].__delitem__(slice(1500, None, 3)))
        tokenizer.post_processor = template(tokenizer, SPECIAL[:1])
    elif kind == "qwen":
        tokenizer = train(folder, lines, QWEN, vocab_size, nfc=True, odd=True)
        config = {"bos_token": None, "eos_token": "<|endoftext|>", "add_bos_token": False}
    elif kind == "gpt2":
        tokenizer = train(folder, lines, None, vocab_size, odd=True)
        config = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}
    elif kind == "gpt2_prefix":
        tokenizer = train(folder, lines, None, vocab_size, add_prefix_space=True)
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
        # One token is only in the config, and the config makes another one strip white space.
        decoder = {"0": {"content": "<|endoftext|>", "lstrip": True, "rstrip": True}, "9": {"content": "<|new|>"}}
        config |= {"added_tokens_decoder": decoder}
    elif kind == "o200k":
        tokenizer = train(folder, lines, O200K, vocab_size)
        tokenizer.post_processor = template(tokenizer, SPECIAL[2:], SPECIAL[1:2])
    elif kind == "borders":
        tokenizer = train(folder, lines, QWEN, 300, nfc=True)
        root = json.loads(tokenizer.to_str())
        merge_every_border(root["model"])
        root["added_tokens"] = root["added_tokens"][:1]
        tokenizer = Tokenizer.from_str(json.dumps(root))
    elif kind == "no_alphabet":
        tokenizer = train(folder, lines[:300], LLAMA3, 300)
        tokenizer = with_model(tokenizer, drop_bytes)
    save(tokenizer, folder, kind == "gpt2")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def merge_every_border(model):
    """Joins every byte beyond ASCII to "a", "1" and space on either side, so that each border of words shows."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    beyond = [token for token in alphabet if not "!" <= token <= "~" and token != "\u0120"]
    model["merges"] = [pair for byte in beyond for side in "a1\u0120" for pair in ([side, byte], [byte, side])]
    tokens = ["<|endoftext|>", *alphabet, *map("".join, model["merges"])]
    model["vocab"] = {token: i for i, token in enumerate(tokens)}


def with_model(tokenizer, change):
    root = json.loads(tokenizer.to_str())
    change(root["model"])
    return Tokenizer.from_str(json.dumps(root))


def drop_bytes(model):
    """Removes the space and the letter e, so that those bytes have no token."""
    model["merges"] = [m for m in model["merges"] if not set("\u0120e") & set("".join(m))]
    model["vocab"] = {t: i for t, i in model["vocab"].items() if t.startswith("<") or not set("\u0120e") & set(t)}


def save(tokenizer, folder, merges_as_text):
    root = json.loads(tokenizer.to_str())
    if merges_as_text:  # the older form of the file
        root["model"]["merges"] = [" ".join(merge) for merge in root["model"]["merges"]]
    (folder / "tokenizer.json").write_text(json.dumps(root, ensure_ascii=False), encoding="utf-8")


KINDS = ["llama3", "qwen", "gpt2", "gpt2_prefix", "o200k", "no_alphabet"]


def train_sentencepiece(folder, lines, **options):
    folder.mkdir(parents=True)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_prefix=str(folder / "tokenizer"),
        minloglevel=2,
        num_threads=2,
        hard_vocab_limit=False,
        **options,
    )


SOURCE_CODE = [
    "#include <vector>\r\nint main(int argc, char** argv) {\r\n\tstd::vector<int> v{1,2,3}; // caf\u00e9\r\n\treturn v[0]!=1;\r\n}\r\n",
    "fn main() -> Result<(), Box<dyn Error>> {\n    let x = 0x1F_u64 << 3;\n    println!(\"{x:?}\");\n    Ok(())\n}\n",
    "SELECT a.id, COUNT(*) AS n FROM t1 a LEFT JOIN t2 b ON a.id=b.id WHERE b.x IS NOT NULL GROUP BY 1 HAVING n>1;\n",
    "<!DOCTYPE html>\n<p class='x'>I'LL they're WE'VE 'S '\u017f 'K\u212a don't</p>\n<script>let f=(a,b)=>a??b;</script>",
    "{\"key\": [1.5e-10, -0.0, null, true], \"\\u00e9\": \"\\\\\"}\n",
    "\tall: $(OBJS)\n\t\t@$(CC) -o $@ $^\n\n\n\n    if x:\n\n        pass   \n  \t \n",
    "(defun f (x) `(,x ,@y))\n;;; ''' \"\"\" --- === +++ >>> <<< ||| && !!\n",
]

MARKERS = ["<|endoftext|>", *SPECIAL, "<tool>", "</tool>", "<tool>s", "word", "caf\u00e9s", "cafe\u0301s", "\u7279\u6b8a"]
MARKERS += ["caf\u00e9ine", "cafe\u0301ine", "<|new|>", "<|endoftext", "<s>", "</s>", "<unk>", "<0x41>", "\u2581"]


def planes(step):
    """Returns every code point except surrogates, in lines; of the planes without characters only each step-th."""
    points = [p for p in range(0x110000) if not 0xD800 <= p < 0xE000]
    points = [p for p in points if p < 0x33480 or 0xE0000 <= p < 0xE0200 or p % step == 0]
    return ["".join(map(chr, points[i : i + 500])) for i in range(0, len(points), 500)]


def random_text(draw, alphabet, count):
    return "".join(draw.choice(alphabet) for _ in range(count))


def hard_texts(seed=20, megabyte=1_000_000):
    """Returns documents that tokenizers get wrong."""
    draw = random.Random(seed)
    texts = ["", " ", "  ", "\n", "\r\n", "\0", "a\0b\0\0", "\ufeff", "\ufffd", "'", "''s", " 's", "a's b'S c'\u017f"]
    texts += LANGUAGES + SOURCE_CODE + ["".join(SOURCE_CODE + LANGUAGES)]
    texts += planes(101)
    # Each character next to letters, spaces and digits, where classes decide.
    texts += ["".join(f"a{chr(p)} {chr(p)}1{chr(p)}" for p in range(s, s + 256)) for s in [*range(0, 0x3000, 256), 0xFE00, 0x1F300]]
    texts += [c * n for c in "a \n\t01!\u00e9\u4e2d\u0301\U0001f600\0\u3000" for n in (2, 63, 64, 65, 1000)]
    texts += [" " * n + "x" for n in (1, 2, 3, 8, 100)] + ["x" + " " * n for n in (1, 2, 3, 8, 100)]
    texts += ["".join(chr(p) for p in range(32)) + "\x7f\x80\x85\x9f", "1234567890" * 30, "3.14159,26535-8979 1e10 0xFFFF \u0661\u0662\u00bd\u2167"]
    marks = [chr(p) for p in [*range(0x300, 0x370), *range(0x1DC0, 0x1E00), *range(0x3099, 0x309B), 0x327, 0x5B0, 0x64B]]
    bases = list("aeionAOE\u00e9\u00fc\u1ea1\u304b\u30cf\u1100\u1161\u11a8\uac00\uac01\u212b\u2126\u0958\u0344\U0001d15e") + [" "]
    for _ in range(300):
        texts.append(random_text(draw, marks + bases * 8, draw.randint(1, 60)))
    spaces = list(" \t\n\r\x0b\x0c\x1c\x85\u00a0\u1680\u180e\u2000\u2028\u2029\u200b\u202f\u205f\u3000\ufeff")
    pieces = MARKERS + spaces * 2 + list("abXY09'\".,-_\u00e9\u4e2d\u200d\u0301") + ["'s", "'LL", "  ", "\r\n", "the", " return"]
    for _ in range(1500):
        texts.append(random_text(draw, pieces, draw.randint(1, 40)))
    for _ in range(100):
        texts.append("".join(chr(p if p < 0xD800 else p + 0x800) for p in (draw.randrange(0x10F800) for _ in range(200))))
    everything = "".join(LANGUAGES + SOURCE_CODE + MARKERS)
    texts.append((everything * (megabyte // len(everything) + 1))[:megabyte])
    texts += ["a" * megabyte, " " * megabyte, random_text(draw, "ab \n", megabyte // 4), "\u0301\u0316" * (megabyte // 40)]
    return texts
