"""A run on conversations whose answers end with another token than its texts, as in models that people bring."""
import json

from fixtures import write_job

EOS, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
EOS_ID, START_ID, END_ID = 256, 257, 258  # of the tokenizer below
TEMPLATE = """\
{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
ANSWERS = {
    "Which way is it?": "Left, then left again.",
    "Who wrote this?": "Nobody knows.",
    "What is in it?": "A tuple of two.",
}
# The generation_config.json of the model that training starts from.
DEFAULTS = {"bos_token_id": START_ID, "eos_token_id": [END_ID, 259], "do_sample": True, "temperature": 0.5, "top_p": 0.75}
SIZES = {"dim": 64, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "multiple_of": 64, "vocab_size": 272}
LEARN = ["--optimizer.lr", "1e-2", "--lr_scheduler.warmup_steps", "5", "--optimizer.weight_decay", "0"]
EXPORT = ["--checkpoint.last_save_in_hf", "--checkpoint.export_dtype", "float32"]


def prompt_for(question):
    """Returns what the template makes of a question."""
    return f"{START}user\n{question}{END}\n{START}assistant\n"


def write_tokenizer(folder, chat_template=TEMPLATE):
    """Writes a tokenizer with a token for each byte and four special ones; without a template if that is None."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([EOS, START, END, "<|call|>"])
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": EOS}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    if chat_template is not None:
        (folder / "chat_template.jinja").write_text(chat_template)
    return folder


def write_talks(path, answers):
    lines = ({"prompt": ask, "completion": answer} for ask, answer in answers.items())
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def words_of(context, tokenizer, steps, name="run"):
    """Returns the words of a run that learns the answers by heart in a hundred steps."""
    job = write_job(context, name, steps=steps)
    sizes = [word for key, value in SIZES.items() for word in (f"--model.args.{key}", str(value))]
    data = write_talks(context.folder / "talks.jsonl", ANSWERS)
    words = ["--config", job, *sizes, "--model.hf_assets_path", tokenizer, "--training.dataset", "chat", "--training.dataset_path", data]
    words += ["--training.seq_len", "96", "--training.local_batch_size", "3", "--metrics.log_freq", "20", *LEARN]
    return [*words, "--checkpoint.enable", "--checkpoint.interval", "1000"]
