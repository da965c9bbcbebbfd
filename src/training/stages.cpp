#include <algorithm>
#include <map>
#include <set>

#include "src/distributed/agreement.h"
#include "src/training/config/moved_run.h"
#include "src/training/run/epochs.h"
#include "src/training/stages.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/config/node.h>
#include <tessera/config/shipped.h>

namespace tessera {
namespace {

using config::Node;

std::string stage_name(const Node& stage, std::size_t index, std::set<std::string>& taken) {
  const std::string path = concat("stages[", index, "].name");
  const Node* name = stage.find("name");
  if (name == nullptr || !name->is_scalar() || name->text().empty())
    config::fail(stage, path, "missing: each stage needs a name, which also names its run folder");
  if (name->text().find('/') != std::string::npos)
    config::fail(*name, path, "names a folder inside run.folder, so it must not contain /");
  if (!taken.insert(name->text()).second)
    config::fail(*name, path, "is already the name of another stage: " + name->text());
  return name->text();
}

const Node* setting(const Node& tree, const std::string& key) {
  const Node* node = &tree;
  for (const std::string& part : split(key, '.'))
    if (node != nullptr) node = node->find(part);
  return node;
}

/// `now` is the result of merging a stage's settings into `value`. Returns true if `now` contains everything in `value`, unchanged. Keys
/// that the stage added to maps are ignored.
bool survives(const Node& value, const Node* now) {
  if (now == nullptr) return false;
  if (!value.is_map()) return to_yaml(value) == to_yaml(*now);
  return std::all_of(value.members().begin(), value.members().end(),
                     [&](const Node::Member& member) { return survives(member.second, now->find(member.first)); });
}

std::vector<std::string> overruled_keys(const std::vector<std::string>& overrides, const Node& tree,
                                        const Node& whole) {
  std::set<std::string> keys;
  for (const std::string& assignment : overrides) {
    const std::string key = assignment.substr(0, assignment.find('='));
    const Node* value = setting(tree, key);
    if (value != nullptr && !survives(*value, setting(whole, key))) keys.insert(key);
  }
  return {keys.begin(), keys.end()};
}

bool finished(const Config& config) {
  const std::vector<std::string> saved = CheckpointFolder(config.run.path() + "/checkpoints", 1).list();
  const std::int64_t step = saved.empty() ? -1 : step_of(saved.back());
  return step >= config.training.steps && holds_evaluation(config, step);
}

}  // namespace

std::vector<Stage> load_stages(const std::string& path, const std::vector<std::string>& overrides,
                               bool without_vocabulary) {
  Node tree = config::load_yaml(path, overrides);
  const std::string file = config::find_configuration(path), run = config::configuration_name(file);
  const std::string moved = follow_moved_run(tree, file);
  const Node* list = tree.find("stages");
  if (list == nullptr) return {{.name = "", .config = resolve_config(tree, run, without_vocabulary), .moved = moved}};
  if (!list->is_sequence() || list->items().empty())
    config::fail(*list, "stages", "expected a list like [{name: first, training: {steps: 100}}, ...]");
  const std::vector<Node> items = list->items();
  tree.erase("stages");

  std::vector<Stage> stages;
  std::set<std::string> taken;
  for (std::size_t i = 0; i < items.size(); ++i) {
    Node over = items[i];
    const std::string name = stage_name(over, i, taken);
    over.erase("name");
    const bool follows = i > 0 && over.find("start") == nullptr;
    Node whole = tree;
    whole.merge(over);
    Config config = resolve_config(whole, run, without_vocabulary);
    config.run.name = concat(*config.run.name, "/", name);
    config.run.folder = concat(config.run.path(), "/", name);
    if (auto& mirror = config.run.mirror) mirror = concat(*mirror, "/", name);
    if (auto& copies = config.checkpoint.copy_to) copies = concat(*copies, "/", name);
    if (follows) config.start.weights = *stages.back().config.run.folder;
    stages.push_back({name, std::move(config), follows, overruled_keys(overrides, tree, whole)});
  }
  return stages;
}

void warn_of_stages(const std::vector<Stage>& stages) {
  for (const Stage& stage : stages)
    if (!stage.moved.empty()) log::warning(stage.moved);
  std::map<std::string, std::vector<std::size_t>> overruling;
  for (std::size_t i = 0; i < stages.size(); ++i)
    for (const std::string& key : stages[i].overruled) overruling[key].push_back(i);
  for (const auto& [key, places] : overruling) {
    std::vector<std::string> names, keys;
    for (const std::size_t i : places) {
      names.push_back(stages[i].name);
      keys.push_back(concat("stages.", i, ".", key));
    }
    log::warning("--set ", key, ": has no effect, because the file sets the key for ", places.size() == 1 ? "stage " : "stages ",
                 join_names(names), ": set ", join_names(keys));
  }
}

std::pair<Outcome, int> run_stages(const std::vector<Stage>& stages, const Resume& resume,
                                   const ProcessGroup& group) {
  if (stages.size() > 1 && resume.from != "auto" && resume.from != "none")
    user_error("--resume ", resume.from, ": a run with several stages can only be resumed with --resume auto");
  std::pair<Outcome, int> end{Outcome::finished, 0};
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const Stage& stage = stages[i];
    const bool named = !stage.name.empty();
    Config config = with_steps(stage.config, group);
    // Other machines than rank 0's do not have the previous stage's files.
    if (stage.follows && folder_use(stages[i - 1].config, group).separate) config.start.weights = *stages[i - 1].config.run.mirror;
    const bool over = named && resume.from == "auto" &&
                      run_on_rank0(group, "looking for finished stages", [&] { return finished(config); });
    if (named && group.first())
      log::info("stage ", stage.name, over ? ": already finished" : concat(" (of ", stages.size(), ")"));
    if (over) store_finished_stage(config, group);
    if (over) continue;
    Trainer trainer(config, resume, group);
    end.first = trainer.run();
    end.second = trainer.stop_signal();
    if (end.first != Outcome::finished) break;
  }
  return end;
}

}  // namespace tessera
