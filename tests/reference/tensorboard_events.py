"""Prints what TensorBoard's own reader finds in the event files of a folder, as JSON.

    PYTHON tests/reference/tensorboard_events.py FOLDER

scalars: tag -> [[step, value], ...]; histograms: tag -> [[step, number of values], ...]; texts: tag -> [[step, text], ...].
Needs a Python that has tensorboard.
"""
import json
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def main(folder):
    events = EventAccumulator(folder, size_guidance={"scalars": 0, "tensors": 0, "histograms": 0}).Reload()
    tags = events.Tags()
    found = {"scalars": {tag: [[event.step, event.value] for event in events.Scalars(tag)] for tag in tags["scalars"]}}
    found["histograms"] = {
        tag: [[event.step, event.histogram_value.num] for event in events.Histograms(tag)] for tag in tags["histograms"]
    }
    found["texts"] = {
        tag: [[event.step, event.tensor_proto.string_val[0].decode()] for event in events.Tensors(tag)]
        for tag in tags["tensors"]
        if events.SummaryMetadata(tag).plugin_data.plugin_name == "text"
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
