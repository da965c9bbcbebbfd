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
  transposed,  // theirs is [out, in], ours is [in, out]
  one_ahead,   // theirs is [1, ...], ours is [...]
  two_ahead,   // theirs is [1, 1, ...], ours is [...]
  one_less,    // theirs is ours minus 1, which changes its rounding (the norms of Gemma)
  square_ahead,  // theirs is [1, side, side, ...], ours is [side * side, ...]
  channels_last,  // theirs is [out, side * side * 3] with the channels last, ours is [out, 3, side, side] (linear patch embeddings)
};

/// States that two lists of tensors hold the same numbers. The tensors `theirs` of another library, converted to our layout (`change`) and
/// concatenated along the first dimension, equal the tensors `ours` concatenated along the first dimension. In names, `*` matches a number,
/// and `**` at the end matches any rest.
struct TensorRule {
  std::vector<std::string> theirs;
  std::vector<std::string> ours;
  TensorChange change = TensorChange::same;
  // number of rows of each tensor in `theirs`, relative to the others (2 for a fused kv); empty: all have equally many
  std::vector<std::int64_t> shares = {};
};

/// Returns the rules with the prefix `theirs` added to the other library's names and the prefix `ours` to our names.
std::vector<TensorRule> with_prefixes(std::vector<TensorRule> rules, const std::string& theirs, const std::string& ours);

/// Returns the rules for attention whose linear maps of queries, keys, values and outputs have these names, and are separate modules.
std::vector<TensorRule> attention_rules(const std::string& query, const std::string& key, const std::string& value,
                                        const std::string& output);

/// Returns the elements of both lists, in their order.
std::vector<TensorRule> joined(std::vector<TensorRule> first, const std::vector<TensorRule>& second);

/// Whether a name matches a pattern with `*` and `**`.
bool name_fits(const std::string& pattern, const std::string& name);

/// The result of read_by_rules() or write_by_rules().
struct RenamedTensors {
  NamedTensors tensors;               // the tensors; read_by_rules() uses our names, and write_by_rules() the other library's names
  std::vector<std::string> left_over;  // names of the given tensors that no rule used
};

/// Returns another library's tensors under our names. `own` holds our names with tensors of our shapes. For each name in `own`, the first
/// rule whose tensors are all present supplies the tensor; names without such a rule are left out. Throws UserError naming `origin` and the
/// tensor if concatenated tensors cannot be divided into ours.
RenamedTensors read_by_rules(const std::vector<TensorRule>& rules, const NamedTensors& theirs, const NamedTensors& own,
                             const std::string& origin);

/// Returns our tensors under the other library's names: the inverse of read_by_rules(). Each of our tensors is written
/// by the first rule that lists its name.
RenamedTensors write_by_rules(const std::vector<TensorRule>& rules, const NamedTensors& own);

}  // namespace tessera
