#pragma once

#include <cstdint>
#include <optional>

#include "src/evaluation/tasks/task_settings.h"

namespace tessera {

/// Settings of the task that shows the images nearest to given texts.
struct QuerySettings {
  TaskData data;
  TextList texts;
  std::int64_t top = 6;
};

template <class Visitor>
void fields(Visitor& v, QuerySettings& s) {
  data_fields(v, s.data);
  equal_images_field(v, s.data);
  v("texts", s.texts, "texts to search for, as with `evaluate --query`; they are embedded without a template");
  v("top", s.top, "number of nearest images to show for each text", config::in_range(1, 100));
}
std::optional<config::Problem> validate(const QuerySettings& settings);

/// Settings of the Grad-CAM task. Its heat maps show which parts of an image contribute to the image's similarity with a text.
struct GradCamSettings {
  TaskData data;
  std::int64_t samples = 8;
  TextList texts;
};

template <class Visitor>
void fields(Visitor& v, GradCamSettings& s) {
  data_fields(v, s.data);
  v("samples", s.samples, "number of images to show, spread over the data", config::at_least(1));
  v("texts", s.texts, "texts for which every image's map is shown; empty: each image's first caption");
}

/// Settings of the task that shows where in images the single words of texts are found.
struct WordMapSettings {
  TaskData data;
  std::int64_t samples = 4;
  TextList texts;
  std::int64_t max_words = 24;
};

template <class Visitor>
void fields(Visitor& v, WordMapSettings& s) {
  data_fields(v, s.data);
  v("samples", s.samples, "number of images to show, spread over the data", config::at_least(1));
  v("texts", s.texts, "texts whose words are shown on every image; empty: each image's first caption");
  v("max_words", s.max_words, "number of words to show of a longer text", config::in_range(1, 200));
}

/// Settings of the task that draws a map of image and text features in two dimensions.
struct FeatureMapSettings {
  TaskData data;
  TextList classes;
  TextList templates = {"a photo of a {}."};
  std::int64_t samples = 300;
};

template <class Visitor>
void fields(Visitor& v, FeatureMapSettings& s) {
  data_fields(v, s.data);
  v("classes", s.classes, "class names, one per label; empty: those of the source, or captions if it has none");
  v("templates", s.templates, "prompts with {} for the class name; the embeddings of several prompts are averaged");
  v("samples", s.samples, "number of images on the map, spread over the data", config::in_range(4, 1000));
}
std::optional<config::Problem> validate(const FeatureMapSettings& settings);

}  // namespace tessera
