#pragma once

#include <cstdint>

#include "src/evaluation/tasks/task_settings.h"

namespace tessera {

/// Settings of the task that scores captions of images. The captioning objective's decoder writes these captions.
struct CaptionsSettings {
  TaskData data;
  std::int64_t samples = 12;
};

template <class Visitor>
void fields(Visitor& v, CaptionsSettings& s) {
  data_fields(v, s.data);
  equal_images_field(v, s.data);
  v("samples", s.samples, "number of images to show with their captions, spread over the data", config::at_least(0));
}

/// Settings of the task that measures how well the captioning objective's decoder locates the object that a phrase names.
struct ReferringSettings {
  TaskData data;
};

template <class Visitor>
void fields(Visitor& v, ReferringSettings& s) {
  data_fields(v, s.data);
}

}  // namespace tessera
