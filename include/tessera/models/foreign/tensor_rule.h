#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera {

using NamedTensors = std::map<std::string, at::Tensor>;

/// How a tensor of another library differs from ours.
enum class TensorChange {
  same,        // it does not
  transposed,  // [out, in] for our [in, out]
  one_ahead,   // [1, ...] for our [...]
  two_ahead,   // [1, 1, ...] for our [...]
};

/// Tensors of another library and ours that hold the same numbers: theirs, changed and joined along the first dimension,
/// equal ours joined along it. In names `*` stands for a number and `**`, at the end, for any rest.
struct TensorRule {
  std::vector<std::string> theirs;
  std::vector<std::string> ours;
  TensorChange change = TensorChange::same;
  std::vector<std::int64_t> shares = {};  // how the rows divide among theirs (kv: 2); empty: evenly
};

/// The rules with a prefix before the names of either side.
std::vector<TensorRule> with_prefixes(std::vector<TensorRule> rules, const std::string& theirs, const std::string& ours);

/// Whether a name is one that a pattern with `*` and `**` stands for.
bool name_fits(const std::string& pattern, const std::string& name);

/// What reading by rules gave.
struct RenamedTensors {
  NamedTensors tensors;               // under the names of the side asked for
  std::vector<std::string> left_over;  // names of the given side that no rule took
};

/// Their tensors under our names. For each of `own` (our names, with our shapes) the first rule serves whose tensors are
/// all there; names without a rule are left out. Throws UserError naming `origin` and the tensor where joined tensors do
/// not divide as ours do.
RenamedTensors read_by_rules(const std::vector<TensorRule>& rules, const NamedTensors& theirs, const NamedTensors& own,
                             const std::string& origin);

/// Our tensors under their names: the inverse of read_by_rules(). The first rule that has one of our names writes it.
RenamedTensors write_by_rules(const std::vector<TensorRule>& rules, const NamedTensors& own);

}  // namespace tessera
