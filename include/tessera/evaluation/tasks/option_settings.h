#pragma once

#include <cstdint>
#include <string>

#include <tessera/data/sources/option_set.h>
#include <tessera/evaluation/tasks/task_settings.h>

namespace tessera {

/// Right options beside wrong ones of the same picture or text, out of a benchmark's own files.
struct OptionTaskSettings : OptionSettings {
  std::string prompt_prefix;
  std::int64_t max_items = -1;
  std::string similarity = "global";
};

template <class Visitor>
void fields(Visitor& v, OptionTaskSettings& s) {
  fields(v, static_cast<OptionSettings&>(s));
  v("prompt_prefix", s.prompt_prefix, "put before every text (\"a photo of \", as MMVP does)");
  v("max_items", s.max_items, "look at the first so many items only; -1: at all", config::at_least(-1));
  similarity_field(v, s.similarity);
}

}  // namespace tessera
