#pragma once

#include <string>

#include <tessera/evaluation/tasks/task_settings.h>

namespace tessera {

/// Whether the captions that are found for pictures tell what their own captions do (Bica et al. 2024, section 4.3).
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
    "nouns and adjectives, lower case, a file with one a line: k_precision_na counts these words alone; empty: it is "
    "not "
    "measured");
  v("prompt_prefix", s.prompt_prefix, "put before every caption (\"a photo of \"); its words do not count");
  v("clip_counts", s.clip_counts,
    "count a word at most as often as it occurs in the picture's own captions; false: each time (SPARC)");
}

}  // namespace tessera
