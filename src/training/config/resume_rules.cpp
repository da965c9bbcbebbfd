#include <algorithm>
#include <span>

#include <nlohmann/json.hpp>

#include "src/config/values.h"
#include "src/training/config/resume_rules.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

using config::Node;

std::string node_text(const Node* node) {
  if (node == nullptr) return "nothing";
  return node->is_scalar() ? node->text() : config::to_json(*node).dump();
}

bool holds_maps(const Node& list) {
  return std::ranges::any_of(list.items(), [](const Node& item) { return item.is_map(); });
}

using Parts = std::span<const std::string>;

bool matches_parts(Parts pattern, Parts key) {
  if (pattern.empty()) return true;
  if (pattern[0] == "**")
    return matches_parts(pattern.subspan(1), key) || (!key.empty() && matches_parts(pattern, key.subspan(1)));
  return !key.empty() && (pattern[0] == "*" || pattern[0] == key[0]) &&
         matches_parts(pattern.subspan(1), key.subspan(1));
}

bool any_stands_for(const std::vector<std::string>& patterns, const std::string& key) {
  return std::ranges::any_of(patterns, [&](const std::string& each) { return stands_for(each, key); });
}

// Collects the keys of all values and of the maps that contain these values.
void add_keys(const Node& node, const std::string& path, std::vector<std::string>& out) {
  if (!path.empty()) out.push_back(path);
  if (node.is_map())
    for (const auto& [key, value] : node.members()) add_keys(value, config::join_path(path, key), out);
  if (node.is_sequence() && holds_maps(node))
    for (std::size_t i = 0; i < node.items().size(); ++i) add_keys(node.items()[i], concat(path, ".", i), out);
}

void check_allowed(const std::vector<std::string>& allowed, const Node& there, const Node& here) {
  std::vector<std::string> keys;
  add_keys(there, "", keys);
  add_keys(here, "", keys);
  for (const std::string& pattern : allowed) {
    if (std::ranges::any_of(keys, [&](const std::string& key) { return stands_for(pattern, key); })) continue;
    const std::string near = nearest_name(pattern, keys);
    user_error("--allow-changes ", pattern, ": there is no such setting",
               near.empty() ? "" : concat(": did you mean ", near, "?"));
  }
}

// Fills in the defaults of settings that were added to Tessera after the checkpoint was written. The checkpoint's run behaved as if these
// settings had their default values.
Node spelled_out(const Node& before) {
  try {
    return config::parse_yaml(to_yaml(resolve_config(before, "", /*without_vocabulary=*/true)), "the checkpoint's configuration");
  } catch (const UserError&) {
    return before;  // reached if the configuration names a file or a setting that no longer exists
  }
}

// Returns the number of samples per update on all ranks; 0 if the settings do not say.
std::int64_t samples_of(const Node& settings, int ranks) {
  const auto number = [&](std::initializer_list<const char*> keys) -> std::int64_t {
    const Node* node = &settings;
    for (const char* key : keys)
      if (node != nullptr) node = node->find(key);
    return node != nullptr && !node->is_null() ? config::Value<std::int64_t>::read(*node, *std::rbegin(keys), 0) : 0;
  };
  const std::int64_t global = number({"training", "global_batch"});
  return global > 0 ? global : number({"data", "loader", "batch_size"}) * number({"training", "accumulation"}) * ranks;
}

std::string shortened(const std::string& text) {
  constexpr std::size_t kMost = 60;
  return text.size() > kMost ? text.substr(0, kMost - 3) + "..." : text;
}

}  // namespace

std::string Change::text() const {
  return concat(key, ": ", shortened(before), " there, ", shortened(now), " here");
}

std::vector<Change> changes(const Node& before, const Node& now) {
  std::vector<Change> out;
  const auto same = [](const Node* a, const Node* b) { return node_text(a) == node_text(b); };
  config::compare_trees(now, before, "", same, [&](const std::string& path, const Node* here, const Node* there) {
    out.push_back({path, node_text(there), node_text(here)});
  });
  return out;
}

bool stands_for(const std::string& pattern, const std::string& key) {
  return matches_parts(split(pattern, '.'), split(key, '.'));
}

const std::vector<std::string>& keys_free_to_change() {
  static const std::vector<std::string> keys = {"run",
                                                "training.steps",
                                                "training.epochs",
                                                "training.micro_batch",
                                                "training.threads",
                                                "training.device",
                                                "training.non_finite",
                                                "distributed",
                                                "checkpoint",
                                                "log",
                                                "evaluation",
                                                "start",
                                                "tokenizer.merges",
                                                "tokenizer.model",
                                                "tokenizer.vocab",
                                                "data.validation",
                                                "data.cache",
                                                "data.features.folder",
                                                "data.features.vectors",
                                                "data.teachers.folder",
                                                "data.loader.threads",
                                                "data.loader.prefetch",
                                                "data.loader.prefetch_mb",
                                                "data.loader.retries",
                                                "data.loader.retry_seconds",
                                                "data.loader.warn_after",
                                                "data.loader.timeout",
                                                "data.train.**.path",
                                                "data.train.**.root",
                                                "data.train.**.images",
                                                "data.train.**.annotations",
                                                "data.train.**.captions",
                                                "data.train.**.entities",
                                                "data.train.**.classes",
                                                "data.train.**.index_cache",
                                                "model.*.encoder.grad_checkpointing",
                                                "objective.**.chunk"};
  return keys;
}

ResumeChanges resume_changes(const std::string& before, const Config& now, const std::vector<std::string>& allowed, const RankCounts& ranks) {
  const Node there = spelled_out(config::parse_yaml(before, "the checkpoint's configuration"));
  const Node here = config::parse_yaml(to_yaml(now), "this configuration");
  check_allowed(allowed, there, here);
  ResumeChanges out;
  out.samples_before = samples_of(there, ranks.before);
  out.samples_now = samples_of(here, ranks.now);
  const auto same_batch = [&](const std::string& key) {
    return out.samples_before == out.samples_now && (key == "data.loader.batch_size" || key == "training.global_batch");
  };
  for (Change& change : changes(there, here)) {
    if (now.training.micro_batch.automatic && change.key == "training.micro_batch") continue;
    std::vector<Change>& kind = same_batch(change.key) || any_stands_for(keys_free_to_change(), change.key) ? out.free
                                : any_stands_for(allowed, change.key) ? out.allowed
                                                                      : out.refused;
    kind.push_back(std::move(change));
  }
  return out;
}

std::string refusal(const std::vector<Change>& refused) {
  constexpr std::size_t kNamed = 3;
  std::string list, keys;
  for (const Change& change : refused) keys += " " + change.key;
  for (const Change& change : std::span(refused).first(std::min(kNamed, refused.size())))
    list += (list.empty() ? "" : "; ") + change.text();
  if (refused.size() > kNamed) list += concat("; and ", refused.size() - kNamed, " more");
  return concat("was trained with other settings: ", list,
                ": use the same settings, allow these changes with --allow-changes", keys, ", or choose another run.folder");
}

}  // namespace tessera
