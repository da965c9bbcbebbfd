#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include <tessera/report/bootstrap.h>

namespace tessera {

/// Entries of report::Outcomes as tensors [E]; undefined tensors take the defaults given below.
struct OutcomeRows {
  at::Tensor part;         // double, or bool for hits
  at::Tensor whole = {};   // double; default 1
  at::Tensor sample = {};  // int64; default 0, 1, 2, ...
  at::Tensor group = {};   // int64; default 0
};

report::Outcomes outcomes_of(const std::string& metric, const OutcomeRows& rows);

/// Returns the outcomes of recall or accuracy at k: ranks [E] int64 from 0 are hits if below k; -1 is left out. `sample` and
/// `group` are as in OutcomeRows.
report::Outcomes hits_within(const std::string& metric, const at::Tensor& ranks, std::int64_t k,
                             const at::Tensor& sample = {}, const at::Tensor& group = {});

}  // namespace tessera
