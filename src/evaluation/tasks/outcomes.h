#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include <tessera/report/bootstrap.h>

namespace tessera {

/// Entries of report::Outcomes as tensors of one length [E]; undefined ones are their defaults.
struct OutcomeRows {
  at::Tensor part;         // double, or bool: hits
  at::Tensor whole = {};   // double; 1
  at::Tensor sample = {};  // int64; 0, 1, 2, ...
  at::Tensor group = {};   // int64; 0
};

report::Outcomes outcomes_of(const std::string& metric, const OutcomeRows& rows);

/// Those of recall or accuracy at k: ranks [E] int64 from 0, hits below k; -1 counts nowhere. `sample` and `group` as
/// above.
report::Outcomes hits_within(const std::string& metric, const at::Tensor& ranks, std::int64_t k,
                             const at::Tensor& sample = {}, const at::Tensor& group = {});

}  // namespace tessera
