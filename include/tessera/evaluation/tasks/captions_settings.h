#pragma once

#include <cstdint>

#include <tessera/evaluation/tasks/task_settings.h>

namespace tessera {

/// What the decoder of the objective captioning says of pictures.
struct CaptionsSettings {
  TaskData data;
  std::int64_t samples = 12;
};

template <class Visitor>
void fields(Visitor& v, CaptionsSettings& s) {
  data_fields(v, s.data);
  v("samples", s.samples, "pictures to show with their captions, spread over the data", config::at_least(0));
}

/// Where the decoder of the objective captioning finds what a phrase names.
struct ReferringSettings {
  TaskData data;
};

template <class Visitor>
void fields(Visitor& v, ReferringSettings& s) {
  data_fields(v, s.data);
}

}  // namespace tessera
