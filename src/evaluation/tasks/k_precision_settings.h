#pragma once

#include <string>

#include "src/evaluation/tasks/task_settings.h"

namespace tessera {

/// Settings of the task that measures how far captions retrieved for an image agree with the image's own captions (Bica et al.
/// 2024, section 4.3).
struct KPrecisionSettings {
  TaskData data;
  TextList lexicon;
  std::string prompt_prefix;
  bool clip_counts = false;
};

template <class Visitor>
void fields(Visitor& v, KPrecisionSettings& s) {
  data_fields(v, s.data);
  equal_images_field(v, s.data);
  v("lexicon", s.lexicon,
    "nouns and adjectives in lower case (in a file, one per line), the only words that k_precision_na counts; empty: k_precision_na "
    "is not measured");
  v("prompt_prefix", s.prompt_prefix, "text put before every caption, such as \"a photo of \"; its words do not count");
  v("clip_counts", s.clip_counts,
    "count a word at most as often as it occurs in the image's own captions; false: count every occurrence (SPARC)");
}

}  // namespace tessera
