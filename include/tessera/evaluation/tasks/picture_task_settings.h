#pragma once

#include <cstdint>
#include <optional>

#include <tessera/evaluation/tasks/task_settings.h>

namespace tessera {

/// The pictures of the data that are nearest to texts.
struct QuerySettings {
  TaskData data;
  TextList texts;
  std::int64_t top = 6;
};

template <class Visitor>
void fields(Visitor& v, QuerySettings& s) {
  data_fields(v, s.data);
  v("texts", s.texts, "what is looked for, as `evaluate --query` takes it; each is embedded as it stands");
  v("top", s.top, "pictures to show for each, the nearest", config::in_range(1, 100));
}
std::optional<config::Problem> validate(const QuerySettings& settings);

/// Where in a picture its similarity with a text comes from.
struct GradCamSettings {
  TaskData data;
  std::int64_t samples = 8;
  TextList texts;
};

template <class Visitor>
void fields(Visitor& v, GradCamSettings& s) {
  data_fields(v, s.data);
  v("samples", s.samples, "pictures to show, spread over the data", config::at_least(1));
  v("texts", s.texts, "texts whose maps every picture shows; empty: its own first caption");
}

/// Features of pictures and texts on a plane.
struct FeatureMapSettings {
  TaskData data;
  TextList classes;
  TextList templates = {"a photo of a {}."};
  std::int64_t samples = 300;
  double perplexity = 30;
  std::int64_t iterations = 500;
};

template <class Visitor>
void fields(Visitor& v, FeatureMapSettings& s) {
  data_fields(v, s.data);
  v("classes", s.classes, "class names by label; empty: the source's own, or captions where it has none");
  v("templates", s.templates, "prompts with {} for the class name; several are averaged");
  v("samples", s.samples, "pictures on the map, spread over the data", config::in_range(4, 1000));
  v("perplexity", s.perplexity, "t-SNE: about so many neighbors of a point count", config::above(1));
  v("iterations", s.iterations, "t-SNE: steps of gradient descent", config::at_least(1));
}
std::optional<config::Problem> validate(const FeatureMapSettings& settings);

}  // namespace tessera
