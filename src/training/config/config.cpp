#include <algorithm>
#include <filesystem>
#include <utility>

#include "src/base/printable.h"
#include "src/config/environment.h"
#include "src/config/values.h"
#include "src/remote/cache.h"
#include "src/training/config/moved_run.h"
#include "src/training/config/published_towers.h"
#include <tessera/base/text.h>
#include <tessera/config/shipped.h>
#include <tessera/data/tokenizers/tokenizer.h>
#include <tessera/evaluation/task.h>
#include <tessera/models/dual_encoder.h>
#include <tessera/models/registry.h>
#include <tessera/objectives/objective.h>
#include <tessera/optim/optimizer.h>
#include <tessera/training/config/config.h>

namespace tessera {

using config::RegistryBase;
using config::ModuleSettings;
using config::Node;

namespace {

// Returns the node at a dotted path. If it does not exist, returns the deepest existing node on that path. Errors about the key report
// this node's position.
const Node& nearest_node(const Node& tree, const std::string& path) {
  const Node* node = &tree;
  for (const std::string& key : split(path, '.')) {
    const Node* child = node->find(key);
    if (child == nullptr) break;
    node = child;
  }
  return *node;
}

void check_tokenizer(const Config& c, const Node& tree) {
  if (!c.model.text || !c.tokenizer) return;
  const Node* room = c.model.text->encoder.settings.find("context_length");
  const Node* length = c.tokenizer->settings.find("context_length");
  if (length == nullptr || room == nullptr) return;
  const std::string path = "model.text.encoder.context_length";
  if (config::Value<std::int64_t>::read(*length, path, 0) > config::Value<std::int64_t>::read(*room, path, 0))
    config::fail(nearest_node(tree, path), path,
                 concat("is ", room->text(), ", but tokenizer.context_length is ", length->text(),
                        ": leave it out to follow the tokenizer"));
}

void check_embed_dim(const Config& c, const Node& tree) {
  if (!c.model.text) return;
  const Node* image = c.model.image.projection.settings.find("embed_dim");
  const Node* text = c.model.text->projection.settings.find("embed_dim");
  if (image == nullptr || text == nullptr || image->text() == text->text()) return;
  const std::string path = "model.text.projection.embed_dim";
  config::fail(nearest_node(tree, path), path,
               "is " + text->text() + ", but model.image.projection.embed_dim is " + image->text() +
                   ": both towers share one space");
}

void check_schedule(const Config& c, const Node& tree) {
  if (c.evaluation.weights == "ema" && !c.training.ema)
    config::fail(nearest_node(tree, "evaluation.weights"), "evaluation.weights",
                 "is ema, but nothing is averaged: set training.ema");
  const Node* peak = c.optimizer.settings.find("lr");
  if (peak != nullptr && c.schedule.schedule != "constant" &&
      c.schedule.min_lr > config::Value<double>::read(*peak, "optimizer.lr", 0)) {
    const std::string path = "schedule.min_lr";
    config::fail(nearest_node(tree, path), path,
                 concat("is ", c.schedule.min_lr, ", above optimizer.lr, which is ", peak->text()));
  }
}

void check_cuda_graph(const Config& c, const Node& tree) {
  if (!c.training.cuda_graph) return;
  const std::string path = "training.cuda_graph";
  if (keeps_shapes(c.model.preprocessing))
    config::fail(nearest_node(tree, path), path,
                 "is true, but a recorded step needs a fixed shape, and with model.preprocessing.resize_mode: naflex the shape of batches "
                 "varies: set it to false");
  if (!(c.training.micro_batch.automatic || c.training.micro_batch.samples)) return;
  config::fail(nearest_node(tree, path), path,
               "is true, and training.micro_batch is set: GradCache cannot be recorded; set only one of the two");
}

void check_evaluation(const Config& c, const Node& tree) {
  if (c.data.validation) return;
  for (std::size_t i = 0; i < c.evaluation.tasks.size(); ++i) {
    const Node* source = c.evaluation.tasks[i].settings.find("source");
    if (source == nullptr || !source->is_null()) continue;
    const std::string path = concat("evaluation.tasks[", i, "].source");
    config::fail(nearest_node(tree, "evaluation.tasks"), path,
                 "missing, and there is no data.validation as a default: set one of the two");
  }
}

// Checks the parts of checkpoint.keep_best that can be checked before the first evaluation, such as whether the
// metric's task exists.
void check_keep_best(const Config& c, const Node& tree) {
  if (!c.checkpoint.keep_best) return;
  const std::string path = "checkpoint.keep_best.metric", &metric = c.checkpoint.keep_best->metric;
  const auto fail = [&](const auto&... text) { config::fail(nearest_node(tree, path), path, concat(text...)); };
  std::vector<std::string> tasks;
  for (std::size_t i = 0; i < c.evaluation.tasks.size(); ++i) tasks.push_back(task_name(c.evaluation.tasks, i));
  const std::size_t dot = metric.find('.');
  if (metric.find_first_of(" \t\n") != std::string::npos || dot == 0 || dot == std::string::npos ||
      dot + 1 == metric.size())
    fail("expected TASK.METRIC, say ", tasks.empty() ? "validation_loss" : tasks.front(), ".",
         tasks.empty() || tasks.front() == "validation_loss" ? "loss" : "METRIC", ", got ",
         metric.empty() ? "nothing" : metric);
  const std::string task = metric.substr(0, dot);
  if (tasks.empty()) fail("is ", metric, ", but evaluation.tasks is empty: nothing is measured");
  if (!contains(tasks, task))
    fail("is ", metric, ", but no task of evaluation.tasks is called ", task, ": they are ", join_names(tasks));
  if (c.evaluation.every_steps == 0)
    fail("is set, but evaluation.every_steps is 0, so only the final state is measured: set it");
}

// Throws UserError if the image encoder and the preprocessing have different values of image_size.
void check_image_size(const Config& c, const Node& tree) {
  const Node* node = c.model.image.encoder.settings.find("image_size");
  if (node == nullptr) return;
  const auto size = config::Value<config::Size>::read(*node, "model.image.encoder.image_size", {});
  if (size == c.model.preprocessing.image_size) return;
  const std::string path = "model.preprocessing.image_size";
  config::fail(
      nearest_node(tree, path), path,
      concat("is ", c.model.preprocessing.image_size.height, "x", c.model.preprocessing.image_size.width,
             ", but model.image.encoder.image_size is ", size.height, "x", size.width, ": leave one of them out"));
}

// Throws UserError if the resolved parts do not fit together; `tree` records where each key was written.
void check_combination(const Config& config, const Node& tree) {
  check_tokenizer(config, tree);
  check_embed_dim(config, tree);
  check_schedule(config, tree);
  check_cuda_graph(config, tree);
  check_evaluation(config, tree);
  check_keep_best(config, tree);
}

void resolve(ModuleSettings& choice, const RegistryBase& catalog, const std::string& path, const Node& tree) {
  if (choice.name.empty())
    config::fail(nearest_node(tree, path), path,
                 "missing: name one of the " + catalog.kind() + "s " + join_names(catalog.names()));
  choice = catalog.resolve(choice, path);
}

// Returns a module's setting, or nullptr if it is missing or null.
const Node* setting(const ModuleSettings& choice, const char* key) {
  const Node* node = choice.settings.find(key);
  return node != nullptr && !node->is_null() ? node : nullptr;
}

bool knows(const RegistryBase& catalog, const ModuleSettings& choice, const std::string& key) {
  for (const RegistryBase::Entry& entry : catalog.entries())
    if (entry.name == choice.name)
      for (const config::FieldDoc& row : entry.document())
        if (row.path == key) return true;
  return false;
}

// Returns the tokenizer's context length.
Node length_of(const ModuleSettings& tokenizer) {
  if (const Node* length = setting(tokenizer, "context_length")) return *length;
  const auto made = tokenizers().make(tokenizer, "tokenizer", TokenizerContext{});
  return Node::scalar(std::to_string(made->context_length()), tokenizer.settings.mark());
}

// Fills in the text tower's vocabulary size, context length and special tokens from the tokenizer if they are not set. Opens the
// vocabulary file only if necessary.
void follow_tokenizer(Config& c) {
  if (!c.model.text || !c.tokenizer) return;
  ModuleSettings &encoder = c.model.text->encoder, &readout = c.model.text->readout;
  if (knows(encoders(), encoder, "context_length") && setting(encoder, "context_length") == nullptr)
    encoder.settings.set("context_length", length_of(*c.tokenizer));
  if (knows(encoders(), encoder, "vocab_size") && setting(encoder, "vocab_size") == nullptr) {
    const auto tokenizer = tokenizers().make(*c.tokenizer, "tokenizer", TokenizerContext{});
    encoder.settings.set("vocab_size",
                         Node::scalar(std::to_string(tokenizer->vocab_size()), c.tokenizer->settings.mark()));
  }
  if (knows(readouts(), readout, "special_token_ids") && setting(readout, "special_token_ids") == nullptr) {
    const auto tokenizer = tokenizers().make(*c.tokenizer, "tokenizer", TokenizerContext{});
    readout.settings.set("special_token_ids",
                         config::Value<std::vector<std::int64_t>>::dump(tokenizer->special_ids()));
  }
}

// A null stands for the tokenizer's value. This function is for the case in which the tokenizer's values are not available. It removes the
// `keys` whose value is null, so that the module uses its own defaults.
void forget_unset(ModuleSettings& module, std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (module.settings.find(key) != nullptr && setting(module, key) == nullptr) module.settings.erase(key);
}

// The image encoder and the preprocessing both have an image size. If the user wrote only one of the two settings, copies it to the other
// setting. Returns true if the encoder received the size.
bool follow_image_size(Config& c, const Node& tree) {
  ModuleSettings& encoder = c.model.image.encoder;
  if (!knows(encoders(), encoder, "image_size")) return false;
  const Node& preprocessing = nearest_node(tree, "model.preprocessing.image_size");
  const bool written = nearest_node(tree, "model.preprocessing").find("image_size") != nullptr;
  if (const Node* size = setting(encoder, "image_size"); size == nullptr) {
    Node value = config::Value<config::Size>::dump(c.model.preprocessing.image_size);
    encoder.settings.set("image_size", config::marked_like(value, preprocessing));
    return true;
  } else if (!written) {
    c.model.preprocessing.image_size = config::Value<config::Size>::read(*size, "model.image.encoder.image_size", {});
  } else {
    check_image_size(c, tree);
  }
  return false;
}

// The user wrote a value at the key `written`, and this value was copied to the key `filled`. Returns the error message `text` with
// `filled` replaced by `written`.
std::string with_key(std::string text, const std::string& filled, const std::string& written) {
  if (const std::size_t at = text.find(filled + ":"); at != std::string::npos) text.replace(at, filled.size(), written);
  return text;
}

void require(const Node& tree, const std::string& path, const std::string& example) {
  const std::size_t dot = path.rfind('.');
  const std::string parent = dot == std::string::npos ? "" : path.substr(0, dot);
  const Node& group = parent.empty() ? tree : nearest_node(tree, parent);
  if (group.find(path.substr(dot == std::string::npos ? 0 : dot + 1)) == nullptr)
    config::fail(group, path, "missing: for example " + example);
}

// Returns the paths of all settings of a run, including the settings of every module that could be chosen.
std::vector<std::string> all_paths() {
  std::vector<std::string> out;
  const auto add = [&](const std::string& group, const std::vector<config::FieldDoc>& rows) {
    for (const config::FieldDoc& row : rows) out.push_back(config::join_path(group, row.path));
  };
  for (const char* group : {"seed", "run", "data", "tokenizer", "model", "start", "adapt", "objective", "optimizer",
                            "parameters", "schedule", "training", "distributed", "checkpoint", "evaluation", "log"})
    out.push_back(group);
  add("", config::document<Config>());
  const std::vector<std::pair<const char*, const RegistryBase*>> catalogs = {
      {"optimizer", &optimizers()}, {"objective", &objectives()},         {"tokenizer", &tokenizers()},
      {"data.train", &sources()},   {"model.image.encoder", &encoders()}, {"model.image.readout", &readouts()}};
  for (const auto& [group, catalog] : catalogs)
    for (const RegistryBase::Entry& entry : catalog->entries()) add(group, entry.document());
  return out;
}

}  // namespace

std::optional<config::Problem> validate(const RunSettings& settings) {
  const auto is_store = [](const std::string& name) { return remote::is_remote(name) && remote::parse_address(name).is_bucket(); };
  const bool remote_folder = settings.folder && remote::is_remote(*settings.folder);
  if (remote_folder && !is_store(*settings.folder))
    return config::Problem{"folder", *settings.folder + ": runs cannot be stored there: expected s3://BUCKET/PATH, gs://BUCKET/PATH or a "
                                                        "local folder"};
  if (settings.mirror && !is_store(*settings.mirror))
    return config::Problem{"mirror", *settings.mirror + ": expected s3://BUCKET/PATH or gs://BUCKET/PATH"};
  if (remote_folder && settings.mirror)
    return config::Problem{"folder", "is in a store, and run.mirror is set, too: set run.mirror to null, or run.folder to a local folder"};
  return std::nullopt;
}

std::optional<config::Problem> validate(const StartSettings& settings) {
  if (settings.parts.empty() || settings.weights) return std::nullopt;
  return config::Problem{"parts", "needs start.weights: the file to take them from"};
}

std::optional<config::Problem> validate(const StoredTeacherSettings& settings) {
  if (settings.folder.empty()) return config::Problem{"folder", "missing: name the folder, say runs/teachers"};
  if (settings.models.empty()) return config::Problem{"models", "missing: name the teachers, say [runs/large]"};
  return std::nullopt;
}

std::optional<config::Problem> validate(const VectorFiles& settings) {
  if (settings.texts.has_value() == settings.captions.has_value()) return std::nullopt;
  return config::Problem{settings.texts ? "captions" : "texts", "missing: vectors of texts need both texts, a .npy file, and captions, a file "
                                                                "of the texts, one per line"};
}

std::optional<config::Problem> validate(const FeatureSettings& settings) {
  if (settings.vectors && settings.vectors->texts && !settings.texts)
    return config::Problem{"texts", "is false, but vectors.texts is set: set texts to true"};
  if (!settings.folder.empty()) return std::nullopt;
  return config::Problem{"folder", "missing: name the folder, say runs/features"};
}

std::optional<config::Problem> validate(const TrainingSettings& settings) {
  if (settings.residual == "bfloat16" && settings.precision != "bf16")
    return config::Problem{"residual", "bfloat16 needs training.precision: bf16"};
  if (settings.clip_mode == "global" || settings.clip_norm) return std::nullopt;
  return config::Problem{"clip_mode", "needs training.clip_norm: the maximum norm of each gradient"};
}

std::optional<config::Problem> validate(const LogSettings& settings) {
  if (!settings.profile || (*settings.profile)[0] <= (*settings.profile)[1]) return std::nullopt;
  return config::Problem{"profile", "ends before it begins: expected [first step, last step]"};
}

namespace {

// If both training.steps and training.epochs are set, keeps the one that takes precedence. The command line has precedence over the file
// itself, and the file over the files that it extends. If both settings come from extended files, the last of these files wins. A null
// counts as not set.
Node with_one_length(Node tree, const std::string& name) {
  const Node* found = tree.find("training");
  if (found == nullptr || !found->is_map()) return tree;
  Node training = *found;
  for (const char* key : {"steps", "epochs"})
    if (const Node* value = training.find(key); value != nullptr && value->is_null()) training.erase(key);
  const Node *steps = training.find("steps"), *epochs = training.find("epochs");
  if (steps != nullptr && epochs != nullptr) {
    const std::string &file_of_steps = steps->mark().file, &file_of_epochs = epochs->mark().file;
    if (file_of_steps == file_of_epochs)
      config::fail(*epochs, "training.epochs",
                   concat("is set together with training.steps (", steps->mark().text(), "): leave one of them out"));
    const auto nearness = [&](const std::string& file) {
      return file == "--set" ? 2 : config::configuration_name(file) == name ? 1 : 0;
    };
    // Node::merge() puts the keys of a later file last.
    const auto first = std::find_if(training.members().begin(), training.members().end(), [](const auto& member) {
      return member.first == "steps" || member.first == "epochs";
    });
    const int lead = nearness(file_of_steps) - nearness(file_of_epochs);
    const bool by_steps = lead > 0 || (lead == 0 && first->first == "epochs");
    training.erase(by_steps ? "epochs" : "steps");
  }
  tree.set("training", std::move(training));
  return tree;
}

Config resolve_tree(const Node& given, const std::string& name, bool without_vocabulary) {
  const Node tree = with_published_towers(with_one_length(given, name));
  Config c = config::read<Config>(tree);
  require(tree, "data", "data: {train: {name: shapes}}");
  require(tree, "data.train", "train: {name: shapes}");
  if (c.model.text) require(tree, "tokenizer", "tokenizer: clip-bpe");
  require(tree, "model", "extends: sparc/vitb16.yaml");
  if (!c.run.name) c.run.name = name;
  c.run.folder = c.run.path();
  if (remote::is_remote(*c.run.folder)) c.run.mirror = std::exchange(c.run.folder, remote::run_folder(c.data.cache, *c.run.folder));
  while (c.run.mirror && c.run.mirror->ends_with('/')) c.run.mirror->pop_back();

  resolve(c.data.train, sources(), "data.train", tree);
  if (c.data.validation) resolve(*c.data.validation, sources(), "data.validation", tree);
  if (c.tokenizer) resolve(*c.tokenizer, tokenizers(), "tokenizer", tree);
  std::exception_ptr no_vocabulary;
  try {
    follow_tokenizer(c);
  } catch (const UserError&) {
    no_vocabulary = std::current_exception();
    forget_unset(c.model.text->encoder, {"context_length", "vocab_size"});
    forget_unset(c.model.text->readout, {"special_token_ids"});
  }
  const bool followed = follow_image_size(c, tree);
  try {
    c.model = tessera::resolve(c.model, "model");
  } catch (const UserError& error) {
    if (followed) throw UserError(with_key(error.what(), "model.image.encoder.image_size", "model.preprocessing.image_size"));
    throw;
  }
  resolve(c.objective, objectives(), "objective", tree);
  resolve(c.optimizer, optimizers(), "optimizer", tree);
  c.evaluation.tasks = resolve_tasks(c.evaluation.tasks, "evaluation.tasks");
  // Thrown last, so that misspelled settings are reported before a missing vocabulary file.
  if (no_vocabulary && !without_vocabulary) std::rethrow_exception(no_vocabulary);
  check_combination(c, tree);
  if (const Node* batch = nearest_node(tree, "data.loader").find("batch_size");
      c.training.global_batch && batch != nullptr && batch->mark().file == "--set")
    config::fail(*batch, "data.loader.batch_size",
                 "has no effect, because training.global_batch determines it: change training.global_batch, or set it to null");
  return c;
}

}  // namespace

Config resolve_config(const Node& tree, const std::string& name, bool without_vocabulary) {
  try {
    return resolve_tree(tree, name, without_vocabulary);
  } catch (const config::UnknownKey& error) {
    throw error.seen_among(all_paths());
  }
}

Config load_config(const std::string& path, const std::vector<std::string>& overrides) {
  Node tree = config::load_yaml(path, overrides);
  const std::string file = config::find_configuration(path);
  follow_moved_run(tree, file);
  return resolve_config(tree, config::configuration_name(file));
}

std::string to_yaml(const Config& config) {
  Node tree = config::dump(config);
  if (config.training.epochs) config::apply_override(tree, "training.steps=null");
  return config::to_yaml(config::escape_environment(tree));
}

std::string to_yaml_anywhere(Config config) {
  const auto make_absolute = [](std::string& path) {
    if (!remote::is_remote(path)) path = std::filesystem::absolute(path).lexically_normal().string();
  };
  if (config.run.folder) make_absolute(*config.run.folder);
  for (auto* path : {&config.start.weights, &config.start.image, &config.start.text})
    if (*path) make_absolute((*path)->name);
  if (config.checkpoint.copy_to) make_absolute(*config.checkpoint.copy_to);
  // The names of the configuration's file and of the working folder need not be UTF-8, but YAML must be.
  for (const auto& [key, text] : {std::pair("run.name", config.run.name), std::pair("run.folder", config.run.folder),
                                  std::pair("checkpoint.copy_to", config.checkpoint.copy_to)})
    if (text && !is_utf8(*text)) user_error(key, ": ", printable(*text), " is not UTF-8: rename the folder or the file");
  return to_yaml(config);
}

}  // namespace tessera
