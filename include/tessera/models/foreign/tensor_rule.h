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
  transposed,  // [out, in] for our [in, out]
  one_ahead,   // [1, ...] for our [...]
  two_ahead,   // [1, 1, ...] for our [...]
};

/// Tensors of another library and ours with the same numbers: theirs, changed and concatenated along the first
/// dimension, equal ours concatenated along it. In names `*` matches a number and `**`, at the end, matches any rest.
struct TensorRule {
  std::vector<std::string> theirs;
  std::vector<std::string> ours;
  TensorChange change = TensorChange::same;
  std::vector<std::int64_t> shares = {};  // how the rows are divided among theirs (kv: 2); empty: evenly
};

/// Returns the rules with a prefix added to the names of each side.
std::vector<TensorRule> with_prefixes(std::vector<TensorRule> rules, const std::string& theirs, const std::string& ours);

/// Whether a name matches a pattern with `*` and `**`.
bool name_fits(const std::string& pattern, const std::string& name);

/// The result of reading by rules.
struct RenamedTensors {
  NamedTensors tensors;               // under the names of the requested side
  std::vector<std::string> left_over;  // names of the given side that no rule used
};

/// Returns their tensors under our names. For each of `own` (our names, with our shapes) the first rule with all its
/// tensors present is used; names without a rule are left out. Throws UserError naming `origin` and the tensor if
/// concatenated tensors do not divide as ours do.
RenamedTensors read_by_rules(const std::vector<TensorRule>& rules, const NamedTensors& theirs, const NamedTensors& own,
                             const std::string& origin);

/// Returns our tensors under their names: the inverse of read_by_rules(). The first rule that has one of our names
/// writes it.
RenamedTensors write_by_rules(const std::vector<TensorRule>& rules, const NamedTensors& own);

}  // namespace tessera
