#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

#include <ATen/ATen.h>

#include "src/foreign/tensor_rule.h"
#include "src/models/position_embedding.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

using Captures = std::vector<std::string>;

// Matches a name against a pattern. Returns the parts that `*` and `**` stand for, or nullopt if the name does not match.
std::optional<Captures> match(std::string_view pattern, std::string_view name) {
  Captures captures;
  while (!pattern.empty()) {
    if (pattern == "**") {
      captures.emplace_back(name);
      return captures;
    }
    if (name.empty()) return std::nullopt;
    if (pattern.front() == '*') {
      const std::size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
      if (digits == 0) return std::nullopt;
      captures.emplace_back(name.substr(0, digits));
      name.remove_prefix(digits);
    } else {
      if (pattern.front() != name.front()) return std::nullopt;
      name.remove_prefix(1);
    }
    pattern.remove_prefix(1);
  }
  return name.empty() ? std::optional(captures) : std::nullopt;
}

std::string filled(const std::string& pattern, const Captures& captures) {
  std::string out;
  std::size_t next = 0;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '*') {
      out += pattern[i];
      continue;
    }
    out += captures.at(next++);
    if (pattern.substr(i) == "**") break;
  }
  return out;
}

std::vector<std::string> filled(const std::vector<std::string>& patterns, const Captures& captures) {
  std::vector<std::string> out;
  for (const std::string& pattern : patterns) out.push_back(filled(pattern, captures));
  return out;
}

at::Tensor as_ours(at::Tensor tensor, TensorChange change) {
  if (change == TensorChange::transposed) return tensor.dim() == 2 ? tensor.t() : tensor;
  if (change == TensorChange::one_less) return tensor.to(at::kFloat) + 1;
  if (change == TensorChange::square_ahead) return tensor.dim() == 4 ? tensor.flatten(0, 2) : tensor;
  if (change == TensorChange::channels_last) {
    const config::Size side = square_grid(tensor.size(-1) / 3);
    if (tensor.dim() != 2 || side.height == 0 || tensor.size(1) % 3 != 0) return tensor;
    return tensor.unflatten(1, {side.height, side.width, 3}).permute({0, 3, 1, 2}).contiguous();
  }
  const int ahead = change == TensorChange::two_ahead ? 2 : change == TensorChange::one_ahead ? 1 : 0;
  for (int i = 0; i < ahead && tensor.dim() > 0 && tensor.size(0) == 1; ++i) tensor = tensor.squeeze(0);
  return tensor;
}

at::Tensor as_theirs(const at::Tensor& tensor, TensorChange change) {
  if (change == TensorChange::transposed) return tensor.t().contiguous();
  if (change == TensorChange::one_ahead) return tensor.unsqueeze(0);
  if (change == TensorChange::one_less) return tensor - 1;
  if (change == TensorChange::square_ahead) {
    const config::Size side = square_grid(tensor.size(0));
    return side.height == 0 ? tensor : tensor.unflatten(0, {1, side.height, side.width});
  }
  if (change == TensorChange::channels_last) return tensor.permute({0, 2, 3, 1}).flatten(1).contiguous();
  return change == TensorChange::two_ahead ? tensor.unsqueeze(0).unsqueeze(0) : tensor;
}

// Returns the tensors of these names, or nullopt if one is missing.
std::optional<std::vector<at::Tensor>> all_of(const NamedTensors& tensors, const std::vector<std::string>& names) {
  std::vector<at::Tensor> out;
  for (const std::string& name : names) {
    const auto found = tensors.find(name);
    if (found == tensors.end()) return std::nullopt;
    out.push_back(found->second);
  }
  return out;
}

// Concatenates the tensors `theirs` and returns the rows that belong to ours[place].
at::Tensor own_part(const std::vector<at::Tensor>& theirs, const std::vector<at::Tensor>& ours, std::size_t place,
                    const std::string& name, const std::string& origin) {
  const at::Tensor joined = theirs.size() == 1 ? theirs[0] : at::cat(theirs);
  if (ours.size() == 1) return joined;
  const auto rows = [](std::int64_t sum, const at::Tensor& tensor) { return sum + tensor.size(0); };
  const std::int64_t first = std::accumulate(ours.begin(), ours.begin() + static_cast<std::ptrdiff_t>(place), std::int64_t{0}, rows);
  const std::int64_t all = std::accumulate(ours.begin(), ours.end(), std::int64_t{0}, rows);
  if (joined.dim() == 0 || joined.size(0) != all)
    user_error(origin, ": tensor ", name, " is ", concat(joined.sizes()), ", but the model's settings make it ", all, " rows");
  return joined.narrow(0, first, ours[place].size(0));
}

}  // namespace

bool name_fits(const std::string& pattern, const std::string& name) {
  return match(pattern, name).has_value();
}

std::vector<TensorRule> attention_rules(const std::string& query, const std::string& key, const std::string& value,
                                        const std::string& output) {
  std::vector<TensorRule> rules = {{{output + ".**"}, {"attn.out_proj.**"}}};
  for (const char* what : {"weight", "bias"})
    rules.push_back({{concat(query, ".", what), concat(key, ".", what), concat(value, ".", what)}, {concat("attn.in_proj_", what)}});
  return rules;
}

std::vector<TensorRule> joined(std::vector<TensorRule> first, const std::vector<TensorRule>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

std::vector<TensorRule> with_prefixes(std::vector<TensorRule> rules, const std::string& theirs, const std::string& ours) {
  for (TensorRule& rule : rules) {
    for (std::string& name : rule.theirs) name.insert(0, theirs);
    for (std::string& name : rule.ours) name.insert(0, ours);
  }
  return rules;
}

RenamedTensors read_by_rules(const std::vector<TensorRule>& rules, const NamedTensors& theirs, const NamedTensors& own,
                             const std::string& origin) {
  RenamedTensors out;
  std::set<std::string> taken;
  const auto read = [&](const std::string& name, const TensorRule& rule) {
    for (std::size_t place = 0; place < rule.ours.size(); ++place) {
      const auto captures = match(rule.ours[place], name);
      if (!captures) continue;
      const std::vector<std::string> names = filled(rule.theirs, *captures);
      auto found = all_of(theirs, names);
      const auto shapes = all_of(own, filled(rule.ours, *captures));
      if (!found || !shapes) continue;
      for (at::Tensor& tensor : *found) tensor = as_ours(tensor, rule.change);
      out.tensors[name] = own_part(*found, *shapes, place, names.front(), origin);
      taken.insert(names.begin(), names.end());
      return true;
    }
    return false;
  };
  for (const auto& [name, tensor] : own)
    (void)std::ranges::any_of(rules, [&](const TensorRule& rule) { return read(name, rule); });
  for (const auto& [name, tensor] : theirs)
    if (!taken.contains(name)) out.left_over.push_back(name);
  return out;
}

RenamedTensors write_by_rules(const std::vector<TensorRule>& rules, const NamedTensors& own) {
  RenamedTensors out;
  std::set<std::string> written;
  const auto write = [&](const std::string& name, const TensorRule& rule) {
    std::optional<Captures> captures;
    for (std::size_t place = 0; place < rule.ours.size() && !captures; ++place) captures = match(rule.ours[place], name);
    if (!captures) return false;
    const std::vector<std::string> ours = filled(rule.ours, *captures), theirs = filled(rule.theirs, *captures);
    const auto found = all_of(own, ours);
    if (!found) return false;
    const at::Tensor joined = found->size() == 1 ? found->front() : at::cat(*found);
    std::vector<std::int64_t> shares = rule.shares;
    if (shares.empty()) shares.assign(theirs.size(), 1);
    const std::int64_t unit = theirs.size() == 1 ? 0 : joined.size(0) / std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
    std::int64_t first = 0;
    for (std::size_t i = 0; i < theirs.size(); ++i) {
      const std::int64_t rows = unit * shares[i];
      const at::Tensor part = theirs.size() == 1 ? joined : joined.narrow(0, first, rows);
      out.tensors[theirs[i]] = as_theirs(part, rule.change).contiguous();
      first += rows;
    }
    written.insert(ours.begin(), ours.end());
    return true;
  };
  for (const auto& [name, tensor] : own)
    if (!written.contains(name))
      (void)std::ranges::any_of(rules, [&](const TensorRule& rule) { return write(name, rule); });
  for (const auto& [name, tensor] : own)
    if (!written.contains(name)) out.left_over.push_back(name);
  return out;
}

}  // namespace tessera
