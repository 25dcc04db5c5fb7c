"""Compares the speed of greedy generation with transformers' `generate`, on the same weights and processor.

    .venv/bin/python benchmarks/generate_speed.py [--rows debug,125m] [--dtypes float32,bfloat16] [--threads N]

Needs a Python with transformers: $TITAN_PEER_PYTHON or .venv's. Both programs load random weights of common.py's shapes
and stay open while they continue the same prompt, one text at a time, in turns: ours first in one pair and second in
the next. The first pair is not counted. Ratios above 1 mean that this program is faster; each is the median of the
pairs' ratios, with their range. `cpu` is the ratio of processor time of all threads, which other work on the machine
changes less than time. In float32 both must choose the same tokens, or no ratio is printed.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import common
import harness

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROMPT = "def forward(self, x):"
EOS = 2  # of the tokenizer: neither program may choose it

# Runs with the peer's Python: makes the weights, then answers each line of token ids by the ids that follow.
PEER = """
import json, sys, torch, transformers
mode, folder = sys.argv[1:3]
if mode == "make":
    options = json.loads(sys.argv[3])
    dtype = getattr(torch, options.pop("dtype"))
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**options))
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(0, 0.05)
    model.lm_head.weight.data[{eos}] = 0  # its logit is 0, and others are larger
    model.to(dtype).save_pretrained(folder)
else:
    count, threads = int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
    for line in sys.stdin:
        ids = torch.tensor([json.loads(line)])
        with torch.no_grad():
            out = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False, eos_token_id={eos},
                pad_token_id=0,
            )
        print(json.dumps(out[0, ids.shape[1]:].tolist()), flush=True)
"""


class Side:
    """A program that stays open, and answers a line of standard input by a line of standard output."""

    def __init__(self, command, threads):
        env = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen([str(word) for word in command], text=True, env=env, **pipes)

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def ask(self, line):
        """Returns the answer, and the seconds and processor seconds until it came."""
        cpu, began = self.cpu_seconds(), time.perf_counter()
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"{self.process.args} ended")
        return json.loads(answer), time.perf_counter() - began, self.cpu_seconds() - cpu

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def make_weights(python, peer, folder, shape, dtype):
    options = {
        "hidden_size": shape.dim, "intermediate_size": shape.hidden, "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads, "num_key_value_heads": shape.heads, "vocab_size": shape.vocabulary,
        "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "dtype": dtype,
    }  # fmt: skip
    subprocess.run([python, peer, "make", folder, json.dumps(options)], check=True, stderr=subprocess.DEVNULL)


def compare(name, folder, options, python, peer, dtype):
    words = ["--checkpoint", folder, "--tokenizer", ROOT / "assets/tokenizer", "--device", "cpu", "--temperature", 0]
    words += ["--interactive", "--json", "--quiet", "--max-tokens", options.tokens]
    ours = Side([options.program, "generate", *words], options.threads)
    theirs = Side([python, peer, "serve", folder, options.tokens, options.threads], options.threads)
    row, *_ = ours.ask(PROMPT)
    prompt = json.dumps(row["prompt_ids"])
    pairs = []
    for repeat in range(options.repeats + 1):
        if repeat % 2:
            our, their = ours.ask(PROMPT), theirs.ask(prompt)
        else:
            their, our = theirs.ask(prompt), ours.ask(PROMPT)
        if len(our[0]["ids"]) != len(their[0]) or (dtype == "float32" and our[0]["ids"] != their[0]):
            sys.exit(f"{name}: {our[0]['ids']}, transformers {their[0]}")
        pairs.append((our[1:], their[1:]))
    ours.close()
    theirs.close()
    pairs = pairs[1:]
    best = [options.tokens / min(pair[side][0] for pair in pairs) for side in (0, 1)]
    ratios = [[their[i] / our[i] for our, their in pairs] for i in (0, 1)]
    shown = ", cpu ".join(f"{statistics.median(r):.2f} ({min(r):.2f}-{max(r):.2f})" for r in ratios)
    print(f"{name:5} {dtype:8} ours {best[0]:6.1f} tokens/s, transformers {best[1]:6.1f} at best; ratio {shown}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="debug,125m")
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/titan-train")
    options = parser.parse_args()
    python = harness.peer_python("transformers")
    with tempfile.TemporaryDirectory() as temporary:
        peer = pathlib.Path(temporary) / "peer.py"
        peer.write_text(PEER.replace("{eos}", str(EOS)))
        for name in options.rows.split(","):
            for dtype in options.dtypes.split(","):
                folder = pathlib.Path(temporary) / f"{name}-{dtype}"
                make_weights(python, peer, folder, common.SHAPES[name], dtype)
                compare(name, folder, options, python, peer, dtype)


if __name__ == "__main__":
    main()
