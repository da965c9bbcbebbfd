#include "src/training/config/config_checks.h"

#include <algorithm>
#include <cmath>

#include <tessera/base/text.h>
#include <tessera/data/tokenizers/tokenizer.h>
#include <tessera/evaluation/task.h>

namespace tessera {

using config::Node;

namespace {

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
  if (std::find(tasks.begin(), tasks.end(), task) == tasks.end())
    fail("is ", metric, ", but no task of evaluation.tasks is called ", task, ": they are ", join_names(tasks));
  if (c.evaluation.every_steps == 0)
    fail("is set, but evaluation.every_steps is 0, so only the final state is measured: set it");
}

}  // namespace

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

void check_combination(const Config& config, const Node& tree) {
  check_tokenizer(config, tree);
  check_embed_dim(config, tree);
  check_schedule(config, tree);
  check_cuda_graph(config, tree);
  check_evaluation(config, tree);
  check_keep_best(config, tree);
}

}  // namespace tessera
