#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera {

using NamedTensors = std::map<std::string, at::Tensor>;

/// How a tensor of another library differs from ours.
enum class TensorChange {
  same,        // not at all
  transposed,  // [out, in], which is [in, out] in ours
  one_ahead,   // [1, ...], which is [...] in ours
  two_ahead,   // [1, 1, ...], which is [...] in ours
};

/// A rule that two lists of tensors hold the same numbers. The tensors `theirs` of another library, converted to our layout (`change`) and
/// concatenated along the first dimension, equal the tensors `ours` concatenated along the first dimension. In names, `*` matches a number,
/// and `**` at the end matches any rest.
struct TensorRule {
  std::vector<std::string> theirs;
  std::vector<std::string> ours;
  TensorChange change = TensorChange::same;
  std::vector<std::int64_t> shares = {};  // relative numbers of rows in each of `theirs` (2 for a fused kv); empty: equal numbers
};

/// Returns the rules with a prefix added to the names of each side.
std::vector<TensorRule> with_prefixes(std::vector<TensorRule> rules, const std::string& theirs, const std::string& ours);

/// Whether a name matches a pattern with `*` and `**`.
bool name_fits(const std::string& pattern, const std::string& name);

/// The result of read_by_rules() or write_by_rules().
struct RenamedTensors {
  NamedTensors tensors;               // under the names of the requested side
  std::vector<std::string> left_over;  // names of the given tensors that no rule used
};

/// Returns another library's tensors under our names. `own` holds our names with tensors of our shapes. Each of these names is filled by
/// the first rule whose tensors are all present; names without such a rule are left out. Throws UserError naming `origin` and the tensor if
/// concatenated tensors cannot be divided into ours.
RenamedTensors read_by_rules(const std::vector<TensorRule>& rules, const NamedTensors& theirs, const NamedTensors& own,
                             const std::string& origin);

/// Returns our tensors under the other library's names: the inverse of read_by_rules(). Each of our tensors is written
/// by the first rule that lists its name.
RenamedTensors write_by_rules(const std::vector<TensorRule>& rules, const NamedTensors& own);

}  // namespace tessera
