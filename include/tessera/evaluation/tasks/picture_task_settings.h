#pragma once

#include <cstdint>
#include <optional>

#include <tessera/evaluation/tasks/task_settings.h>

namespace tessera {

/// The images of the data that are nearest to given texts.
struct QuerySettings {
  TaskData data;
  TextList texts;
  std::int64_t top = 6;
};

template <class Visitor>
void fields(Visitor& v, QuerySettings& s) {
  data_fields(v, s.data);
  v("texts", s.texts, "texts to search for, as with `evaluate --query`; they are embedded without a template");
  v("top", s.top, "how many of the nearest images to show for each text", config::in_range(1, 100));
}
std::optional<config::Problem> validate(const QuerySettings& settings);

/// Heat maps of where in an image its similarity with a text comes from.
struct GradCamSettings {
  TaskData data;
  std::int64_t samples = 8;
  TextList texts;
};

template <class Visitor>
void fields(Visitor& v, GradCamSettings& s) {
  data_fields(v, s.data);
  v("samples", s.samples, "images to show, spread over the data", config::at_least(1));
  v("texts", s.texts, "texts whose maps to show for every image; empty: the image's own first caption");
}

/// A map of image and text features in two dimensions.
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
  v("samples", s.samples, "images on the map, spread over the data", config::in_range(4, 1000));
  v("perplexity", s.perplexity, "t-SNE: about how many neighbors of a point count", config::above(1));
  v("iterations", s.iterations, "t-SNE: steps of gradient descent", config::at_least(1));
}
std::optional<config::Problem> validate(const FeatureMapSettings& settings);

}  // namespace tessera
