"""check_layers.py must find what breaks a rule, at its line, and accept what does not."""

import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))
import check_layers  # noqa: E402


def run(files: dict[str, str], rules: str | None = None) -> tuple[int, str]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        command = ["check_layers.py", "--root", folder]
        if rules is not None:
            (root / "rules.toml").write_text(rules)
            command += ["--rules", str(root / "rules.toml")]
        output = io.StringIO()
        with mock.patch("sys.argv", command), contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = check_layers.main()
        return code, output.getvalue()


ALLOWED = {
    "src/base/fs.h": "#include <string>\n",
    "src/base/log.h": "#include <spdlog/spdlog.h>\n",
    "src/base/fs.cpp": '#include "base/fs.h"\n',
    "src/pch.h": "#include <torch/csrc/distributed/c10d/Backend.hpp>\n",
    "src/pch.cpp": '#include "pch.h"\n',
    "src/config/load.cpp": '#include "config/toml/toml_files.h"\n#include "config/job_config.h"\n',
    "src/config/command_line/command_line.cpp": "#include <CLI/CLI.hpp>\n",
    "src/config/toml/document.cpp": "#include <toml++/toml.h>\n",
    "src/distributed/process_group.h": "#include <torch/csrc/distributed/c10d/Backend.hpp>\n",
    "src/optim/clip.cpp": '#include "distributed/process_group.h"\n',
    "src/checkpoint/dcp/planner.cpp": '#include <nlohmann/json.hpp>\n#include "facts/shard_spec.h"\n',
    "src/parallel/fsdp/a.h": '#include "parallel/fsdp/b.h"\n#include "parallel/common.h"\n#include "nn/module.h"\n',
    "src/cuda/nccl.cpp": '#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>\n#include "distributed/process_group.h"\n',
    "models/llama3/llama3.cpp": '#include "models/common/rope.h"\n#include "nn/linear.h"\n',
    "data/tokenizer/sentencepiece_tokenizer.cpp": "#include <sentencepiece_processor.h>\n#include <nlohmann/json.hpp>\n",
    "data/sources/text_source.cpp": '#include "data/tokenizer/tokenizer.h"\n',
    "data/batch_loader.cpp": '#include "data/order/row_source.h"\n#include "contract/batch.h"\n',
    "apps/titan_train.cpp": '#include "models/registry.h"\n#include "data/dataset_kinds.h"\n#include "train/trainer.h"\n',
}

# file, the line that breaks a rule, a part of the message
FORBIDDEN = [
    ("src/base/x.cpp", '#include "config/job_config.h"', "src/base may not include src/config"),
    ("src/base/x.cpp", "#include <ATen/ATen.h>", "torch not in"),
    ("src/config/x.h", "#include <torch/torch.h>", "torch not in"),
    ("lab/sweep/x.h", "#include <c10/core/Device.h>", "torch not in"),
    ("src/kernels/cpu/rows/x_rows.cpp", "#include <ATen/ATen.h>", "torch not in"),
    ("src/nn/x.cpp", '#include "lab/sweep/x.h"', "src/nn may not include lab/sweep"),
    ("apps/train/x.cpp", '#include "apps/commands/x.h"', "apps/train may not include apps/commands"),
    ("src/config/validate.cpp", "#include <toml++/toml.h>", "toml++ only in"),
    ("src/config/command_line/command_line.h", "#include <CLI/CLI.hpp>", "CLI11 only in"),
    ("src/nn/x.cpp", "#include <torch/csrc/distributed/c10d/Store.hpp>", "c10d only in"),
    ("src/nn/x.cpp", '#include "config/load.h"', "src/nn may not include src/config"),
    ("src/nn/x.cpp", "#include <config/load.h>", "src/nn may not include src/config"),
    ("src/optim/x.cpp", '#include "parallel/common.h"', "src/optim may not include src/parallel"),
    ("src/checkpoint/x.cpp", '#include "parallel/fsdp/a.h"', "src/checkpoint may not include src/parallel"),
    ("src/checkpoint/format/x.cpp", '#include "distributed/process_group.h"', "src/checkpoint/format may not include src/distributed"),
    ("src/checkpoint/dcp/x.cpp", '#include "checkpoint/checkpointer.h"', "src/checkpoint/dcp may not include src/checkpoint "),
    ("data/tokenizer/x.cpp", '#include "data/sources/text_source.h"', "data/tokenizer may not include data/sources"),
    ("src/config/keys/x.cpp", '#include "config/load.h"', "src/config/keys may not include src/config "),
    ("src/train/x.cpp", '#include "models/registry.h"', "src/train may not include models"),
    ("src/train/x.cpp", "#include <nlohmann/json.hpp>", "nlohmann/json only in"),
    ("src/parallel/fsdp/x.h", '#include "parallel/tensor/styles.h"', "do not include each other"),
    ("src/parallel/common.h", '#include "parallel/fsdp/a.h"', "do not include each other"),
    ("src/metrics/x.cpp", '#include "step_metrics.h"', "not a layer"),
    ("src/metrics/x.cpp", '#include "../base/fs.h"', "never relative"),
    ("src/metrics/x.cu", '#include "train/trainer.h"', "src/metrics may not include src/train"),
    ("models/x.cpp", '#include "data/tokenizer/tokenizer.h"', "models may not include data"),
    ("models/x.cpp", '#include "train/trainer.h"', "models may not include src/train"),
    ("data/x.cpp", '#include "models/registry.h"', "data may not include models"),
    ("data/x.cpp", '#include "distributed/mesh.h"', "data may not include src/distributed"),
    ("data/order/torchtitan_order.cpp", "#include <sentencepiece_processor.h>", "SentencePiece only in"),
    ("src/base/x.cpp", '  #  include   "config/job_config.h"', "src/base may not include src/config"),
    ("src/novel/x.cpp", "#include <string>", "no entry in layers.toml"),
]


class CheckLayers(unittest.TestCase):
    def test_lets_pass_what_is_allowed(self):
        code, output = run(ALLOWED)
        self.assertEqual((code, output), (0, ""))

    def test_finds_each_violation_at_its_line(self):
        for path, line, message in FORBIDDEN:
            with self.subTest(path=path, line=line):
                at = 1 if "no entry" in message else 3
                code, output = run({**ALLOWED, path: f"// a comment\n#include <vector>\n{line}\n"})
                self.assertEqual(code, 1, output)
                self.assertIn(f"{path}:{at}: ", output)
                self.assertIn(message, output)

    def test_finds_large_files_and_folders(self):
        limits = '[layers]\n"src/base" = []\n[limits]\ntrees = ["src"]\nfiles_of_folder = 2\nlines_of_file = 3\nleft_out = ["src/base/table.cpp"]\n'
        fits = {"src/base/a.h": "\n" * 3, "src/base/b.h": "", "src/base/table.cpp": "\n" * 9, "src/base/notes.md": "\n" * 9}
        self.assertEqual(run(fits, limits), (0, ""))
        code, output = run({**fits, "src/base/a.h": "\n" * 4}, limits)
        self.assertEqual(code, 1)
        self.assertIn("src/base/a.h:4: more than 3 lines", output)
        code, output = run({**fits, "src/base/c.h": ""}, limits)
        self.assertEqual(code, 1)
        self.assertIn("src/base:1: 3 files, more than 2", output)

    def test_finds_header_names_that_stand_twice(self):
        limits = '[layers]\n"src/a" = []\n"src/b" = []\n[limits]\ntrees = ["src"]\nfiles_of_folder = 9\nlines_of_file = 9\nshared_names = ["spec.h"]\nleft_out = []\n'
        apart = {"src/a/x.h": "", "src/b/y.h": "", "src/a/spec.h": "", "src/b/spec.h": "", "src/a/z.cpp": "", "src/b/z.cpp": ""}
        self.assertEqual(run(apart, limits), (0, ""))
        code, output = run({**apart, "src/b/x.h": ""}, limits)
        self.assertEqual(code, 1)
        self.assertIn("src/b/x.h:1: src/a/x.h has this name too", output)

    def test_ignores_other_files_and_comments(self):
        text = '// #include "train/trainer.h"\n'
        self.assertEqual(run({"src/base/x.cpp": text, "src/base/notes.md": '#include "train/trainer.h"\n'})[0], 0)

    def test_refuses_rules_with_a_cycle_or_an_unknown_folder(self):
        code, output = run({}, '[layers]\n"src/a" = ["src/b"]\n"src/b" = ["src/a"]\n')
        self.assertEqual(code, 2)
        self.assertIn("cycle", output)
        code, output = run({}, '[layers]\n"src/a" = ["src/c"]\n')
        self.assertEqual(code, 2)
        self.assertIn('"src/c"', output)


if __name__ == "__main__":
    unittest.main()
