#pragma once

#include <string>

#include <tessera/evaluation/tasks/task_settings.h>

namespace tessera {

/// Whether the captions retrieved for images say the same as the images' own captions (Bica et al. 2024, section 4.3).
struct KPrecisionSettings {
  TaskData data;
  TextList lexicon;
  std::string prompt_prefix;
  bool clip_counts = false;
};

template <class Visitor>
void fields(Visitor& v, KPrecisionSettings& s) {
  data_fields(v, s.data);
  v("lexicon", s.lexicon,
    "nouns and adjectives in lower case, a file with one per line: k_precision_na counts only these words; empty: it is not "
    "measured");
  v("prompt_prefix", s.prompt_prefix, "put before every caption (\"a photo of \"); its words do not count");
  v("clip_counts", s.clip_counts,
    "count a word at most as often as it occurs in the image's own captions; false: count every occurrence (SPARC)");
}

}  // namespace tessera
