#pragma once

#include <cstdint>

#include <tessera/evaluation/tasks/task_settings.h>

namespace tessera {

/// Captions that the decoder of the captioning objective writes for images.
struct CaptionsSettings {
  TaskData data;
  std::int64_t samples = 12;
};

template <class Visitor>
void fields(Visitor& v, CaptionsSettings& s) {
  data_fields(v, s.data);
  v("samples", s.samples, "images to show with their captions, spread over the data", config::at_least(0));
}

/// Where the decoder of the captioning objective locates the object that a phrase names.
struct ReferringSettings {
  TaskData data;
};

template <class Visitor>
void fields(Visitor& v, ReferringSettings& s) {
  data_fields(v, s.data);
}

}  // namespace tessera
