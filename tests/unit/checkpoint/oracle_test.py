"""Tests against PyTorch's own Distributed Checkpoint: it reads what we write, and we read what it writes."""

import io
import itertools
import json
import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
import zlib

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata, StorageMeta
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

TOOL = sys.argv[2]


def tool(*args):
    subprocess.run([TOOL, *map(str, args)], check=True)


def sample_tensors():
    """Returns the content that sharded_items.h makes."""
    f = torch.float
    return {
        "even": torch.arange(48, dtype=f).reshape(8, 6),
        "uneven": torch.arange(35, dtype=f).reshape(5, 7) * 0.1,
        "one_row": torch.arange(3, dtype=f).reshape(1, 3),
        "vector": torch.arange(7, dtype=torch.double) / 3,
        "bf16": (torch.arange(60, dtype=f) / 7).reshape(10, 3, 2).to(torch.bfloat16),
        "half": (torch.arange(12, dtype=f) / 9).to(torch.half),
        "int64": torch.arange(9) * 1000000007,
        "bool": torch.arange(6).remainder(2).to(torch.bool),
        "large": torch.arange(300000, dtype=f).reshape(300, 1000).sqrt(),
        "scalar": torch.tensor(4.0),
        "empty": torch.empty(0, 4),
    }


PARAM_GROUP = {
    "lr": 0.25,
    "betas": (0.9, 0.95),
    "eps": 1e-8,
    "weight_decay": 0.1,
    "amsgrad": False,
    "maximize": False,
    "foreach": False,
    "capturable": False,
    "differentiable": False,
    "fused": True,
    "decoupled_weight_decay": True,
    "initial_lr": 0.5,
}


def loader_state(rank):
    """Returns the state that torchdata's StatefulDataLoader keeps of TorchTitan's text dataset without workers."""
    return {
        "_index_sampler_state": None,
        "_sampler_iter_state": {"samples_yielded": (3 + rank) * 4},
        "_sampler_iter_yielded": 3 + rank,
        "_num_yielded": 3 + rank,
        "_IterableDataset_len_called": None,
        "_shared_seed": None,
        "fetcher_state": {"dataset_iter_state": None, "fetcher_ended": False},
        "dataset_state": {"token_buffer": [1, 300, 70000, rank], "sample_idx": 5},
        "_iterator_finished": False,
    }


def sample_values(ranks):
    return {
        "train_state": {"step": 4},
        "betas": (0.9, 0.95),
        "lrs": [0.0008, -1, 70000, 1 << 40, True, None, "hé"],
        "nested_plain": None,
        "bytes": b"\x00\xff\x80 ab",
        "no_bytes": b"",
        "dataloader": {**{f"dp_rank_{r}": pickle.dumps(loader_state(r), protocol=4) for r in range(ranks)}, "world_size": ranks},
        "optimizer": {f"param_groups.even.{k}": v for k, v in PARAM_GROUP.items()},
        "lr_scheduler": {
            "base_lrs": [0.0008],
            "last_epoch": 4,
            "_step_count": 5,
            "_is_initial": False,
            "_get_lr_called_within_step": False,
            "_last_lr": [0.0002],
        },
    }


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)


def archive_slices(folder):
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    for index, info in metadata.storage_data.items():
        data = (folder / info.relative_path).read_bytes()
        yield index, data[info.offset : info.offset + info.length]


def check_sidecar(folder):
    """Checks that titan.checksums.json has the size and the CRC-32, by zlib, of every other file."""
    sidecar = json.loads((folder / "titan.checksums.json").read_text())
    files = {}
    for path in folder.iterdir():
        data = path.read_bytes()
        files[path.name] = {"size": len(data), "crc32": f"{zlib.crc32(data):08x}"}
    del files["titan.checksums.json"]
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    assert sidecar == {"format": 1, "algorithm": "crc32", "save_id": metadata.storage_meta.save_id, "files": files}


def torch_reads_ours(root):
    for ranks, files in ((1, 1), (2, 1), (3, 1), (2, 3)):
        folder = root / f"ours{ranks}_{files}"
        tool("write", folder, ranks, files)
        check_sidecar(folder)
        assert (folder / "__1_2.distcp").exists() == (files == 3)
        want = sample_tensors()
        state = {k: torch.zeros_like(v) for k, v in want.items()}
        values = sample_values(ranks)
        del values["nested_plain"]
        state.update({k: ({i: None for i in v} if isinstance(v, dict) else None) for k, v in values.items()})
        dcp.load(state, checkpoint_id=str(folder), no_dist=True)
        for key, tensor in want.items():
            assert same(state[key], tensor), key
        for rank in range(ranks):
            name = f"dp_rank_{rank}"
            ours = pickle.loads(state["dataloader"].pop(name))
            assert ours == loader_state(rank) and list(ours) == list(loader_state(rank)), ours
            del values["dataloader"][name]
        for key, value in values.items():
            assert state[key] == value and type(state[key]) is type(value), (key, state[key])
        # PyTorch's own metadata for the same state, at one rank, is equal as Python objects.
        metadata = pickle.loads((folder / ".metadata").read_bytes())
        assert type(metadata) is Metadata and metadata.version == "1.0.0"
        assert type(metadata.storage_meta) is StorageMeta and metadata.storage_meta.checkpoint_id == folder
        assert metadata.storage_meta.modules == [] and metadata.storage_meta.load_id is None
        if ranks == 1:
            theirs = root / "theirs"
            full = dict(want, **values)
            full["dataloader"] = {"dp_rank_0": b"", "world_size": 1}
            dcp.save(full, checkpoint_id=str(theirs), no_dist=True)
            expected = pickle.loads((theirs / ".metadata").read_bytes())
            nested = metadata.state_dict_metadata.pop("nested")
            assert nested == BytesStorageMetadata()
            metadata.planner_data.pop("nested")
            # PyTorch writes strides since 2.15, and reads metadata without them, as older versions write it.
            for entry in expected.state_dict_metadata.values():
                if hasattr(getattr(entry, "properties", None), "strides"):
                    entry.properties.strides = None
            assert metadata.state_dict_metadata == expected.state_dict_metadata
            assert metadata.planner_data == expected.planner_data
            ours = {k: v for k, v in metadata.storage_data.items() if k.fqn != "nested"}
            assert set(ours) == set(expected.storage_data)
            assert {k: k.index for k in ours} == {k: k.index for k in expected.storage_data}
            # Archives: equal lengths, same records, and every stored byte equal except the id of the archive.
            a = {k.fqn: b for k, b in archive_slices(folder)}
            b = {k.fqn: b for k, b in archive_slices(theirs)}
            for fqn in b:
                x, y = zipfile.ZipFile(io.BytesIO(a[fqn])), zipfile.ZipFile(io.BytesIO(b[fqn]))
                assert x.testzip() is None
                assert [i.filename for i in x.infolist()] == [i.filename for i in y.infolist()], fqn
                for name in x.namelist():
                    if name.startswith("archive/data/") or name in ("archive/version", "archive/byteorder"):
                        assert x.read(name) == y.read(name), (fqn, name)
                        record = next(i for i in x.infolist() if i.filename == name)
                        assert (record.header_offset + 30 + len(name)) % 64 != 0
        for index, archive in archive_slices(folder):
            if index.offset is not None:
                tensor = torch.load(io.BytesIO(archive), weights_only=True)
                chunk = metadata.state_dict_metadata[index.fqn].chunks[index.index]
                assert tensor.shape == chunk.sizes and index.offset == chunk.offsets
        nested = [torch.load(io.BytesIO(b), weights_only=False) for k, b in archive_slices(folder) if k.fqn == "nested"]
        assert nested == [{"a": [(), 1.5], "b": {}}]
        sizes = {k.fqn: len(b) for k, b in archive_slices(folder)}
        assert sizes["train_state.step"] == 1261 and sizes["scalar"] == 1577


def we_read_torch(root):
    state = dict(sample_tensors(), **sample_values(1))
    state["transposed"] = torch.arange(12.0).reshape(3, 4).t()
    dcp.save(state, checkpoint_id=str(root / "in"), no_dist=True)
    tool("dump", root / "in", root / "out")
    got = {k: (torch.zeros_like(v) if torch.is_tensor(v) else ({i: None for i in v} if isinstance(v, dict) else None)) for k, v in state.items()}
    dcp.load(got, checkpoint_id=str(root / "out"), no_dist=True)
    for key, value in state.items():
        if torch.is_tensor(value):
            assert same(got[key], value), key
        else:
            assert got[key] == value and type(got[key]) is type(value), key


def two_rank_worker(rank, root):
    dist.init_process_group("gloo", init_method=f"file://{root}/store", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    state = {}
    for key, tensor in sample_tensors().items():
        state[key] = distribute_tensor(tensor, mesh, [Shard(0)]) if tensor.dim() > 0 and tensor.dtype != torch.bool else tensor
    state["by_column"] = distribute_tensor(torch.arange(40.0).reshape(4, 10), mesh, [Shard(1)])
    state["dataloader"] = {f"dp_rank_{rank}": pickle.dumps({"token_buffer": list(range(300))}), "world_size": 2}
    dcp.save(state, checkpoint_id=f"{root}/in")
    dist.destroy_process_group()


def we_read_two_ranks(root):
    # Forks, so that torch is not loaded again. Torch has not run here yet, so there are no threads to lose.
    torch.multiprocessing.start_processes(two_rank_worker, (root,), nprocs=2, start_method="fork")
    tool("dump", root / "in", root / "out")
    want = dict(sample_tensors(), by_column=torch.arange(40.0).reshape(4, 10))
    got = {k: torch.zeros_like(v) for k, v in want.items()}
    got["dataloader"] = {"dp_rank_0": None, "dp_rank_1": None, "world_size": None}
    dcp.load(got, checkpoint_id=str(root / "out"), no_dist=True)
    for key, tensor in want.items():
        assert same(got[key], tensor), key
    assert got["dataloader"]["world_size"] == 2
    assert pickle.loads(got["dataloader"]["dp_rank_1"]) == {"token_buffer": list(range(300))}


def killed_saves(root):
    """A save over another one, killed at any call that changes its folder, leaves the old checkpoint or the new."""
    library = pathlib.Path(TOOL).parents[3] / "libtitan_fault.so"
    assert library.exists(), library
    kills = 0
    for n in itertools.count(1):
        folder = root / f"ck{n}"
        fault = {"LD_PRELOAD": str(library), "TITAN_FAULT": f"path={folder}* n={n} do=kill"}
        ended = subprocess.run([TOOL, "overwrite", str(folder), "2"], stdout=subprocess.PIPE, text=True, env=os.environ | fault)
        saved = [int(line) for line in ended.stdout.split()]
        if ended.returncode == 0:
            break
        assert ended.returncode == -signal.SIGKILL, ended
        got = {"w": torch.zeros(1000, 200), "step": None}
        if not saved and not (folder / ".metadata").exists():
            continue  # in the first save, before there was a checkpoint
        dcp.load(got, checkpoint_id=str(folder), no_dist=True)
        assert got["step"] in (len(saved) - 1, len(saved)), (n, got["step"], saved)
        assert torch.equal(got["w"], torch.full((1000, 200), float(got["step"]))), n
        kills += len(saved)
        shutil.rmtree(folder)
    # The second save at least writes and syncs the data of two ranks, the metadata and the checksums, and renames it all.
    assert saved == [0, 1] and kills >= 10, (saved, kills)


if __name__ == "__main__":
    # In memory if there is such a folder: none of this is about the disk.
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as name:
        globals()[sys.argv[1]](pathlib.Path(name))
    print("ok")
