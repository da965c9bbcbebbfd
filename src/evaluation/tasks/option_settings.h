#pragma once

#include <cstdint>
#include <string>

#include "src/data/sources/option_set.h"
#include "src/evaluation/tasks/task_settings.h"

namespace tessera {

/// Settings of the task that reads items from a benchmark's own files. An item has right and wrong options for the same image or text.
struct OptionTaskSettings : OptionSettings {
  std::string prompt_prefix;
  std::int64_t max_items = -1;
  std::string similarity = "global";
};

template <class Visitor>
void fields(Visitor& v, OptionTaskSettings& s) {
  fields(v, static_cast<OptionSettings&>(s));
  v("prompt_prefix", s.prompt_prefix, "text put before every option's text, such as \"a photo of \" (MMVP)");
  v("max_items", s.max_items, "use only the first N items; -1: all", config::at_least(-1));
  similarity_field(v, s.similarity);
}

}  // namespace tessera
