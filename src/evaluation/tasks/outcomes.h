#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include <tessera/report/bootstrap.h>

namespace tessera {

/// The entries of report::Outcomes as tensors [E]. If a tensor is undefined, its entries have the default in the tensor's comment.
struct OutcomeRows {
  at::Tensor part;         // double; or bool, true for hits
  at::Tensor whole = {};   // double; undefined: each entry is 1
  at::Tensor sample = {};  // int64, index of each entry's sample; undefined: 0, 1, 2, ...
  at::Tensor group = {};   // int64; undefined: each entry is 0
};

report::Outcomes make_outcomes(const std::string& metric, const OutcomeRows& rows);

/// Returns the outcomes of recall or accuracy at k. ranks: int64 [E], counted from 0; a rank below k is a hit, and entries with -1
/// are left out. `sample` and `group` are as in OutcomeRows.
report::Outcomes hits_within(const std::string& metric, const at::Tensor& ranks, std::int64_t k,
                             const at::Tensor& sample = {}, const at::Tensor& group = {});

}  // namespace tessera
