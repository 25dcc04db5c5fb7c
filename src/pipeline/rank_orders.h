// The orders of one rank for each kind of schedule; schedule_kinds.cpp lists them. Each computes only: forwards,
// backwards, and their halves.
#pragma once

#include <vector>

#include "pipeline/schedule_kinds.h"

namespace titan::pipeline {

// GPipe (Huang et al. 2019, arXiv 1811.06965): all forwards, then all backwards. One stage per rank.
std::vector<Step> gpipe_order(const PipelineSize& size, int rank);

// 1F1B (PipeDream-flush; Narayanan et al. 2021, arXiv 2104.04473): as many forwards as there are stages from this one
// to the last, then a backward and a forward in turn. One stage per rank.
std::vector<Step> one_forward_one_backward_order(const PipelineSize& size, int rank);

// Interleaved 1F1B (the same paper): microbatches go in rounds through the rank's stages.
std::vector<Step> interleaved_order(const PipelineSize& size, int rank);

// Interleaved 1F1B with ZB-H1's split of the backward (Qi et al. 2023, arXiv 2401.10241): less time before the first
// backward, and rank r computes weight gradients r backwards late, so that they fill the end.
std::vector<Step> interleaved_zero_bubble_order(const PipelineSize& size, int rank);

// Breadth-first (Lamy-Poirier 2022, arXiv 2211.05953): all microbatches through a stage before the next stage; the
// backwards the other way, microbatches descending too.
std::vector<Step> looped_bfs_order(const PipelineSize& size, int rank);

// ZB-V (Qi et al. 2023, section 6): stages in a V, each backward in two halves.
std::vector<Step> zbv_order(const PipelineSize& size, int rank);

// DualPipeV (DeepSeek-AI 2024, arXiv 2412.19437, cut in half): stages in a V, and the forward of one stage overlaps
// the backward of the rank's other stage.
std::vector<Step> dual_pipe_v_order(const PipelineSize& size, int rank);

}  // namespace titan::pipeline
