#pragma once

#include <memory>
#include <optional>
#include <string>

#include "src/data/sources/option_set.h"
#include <tessera/config/registry.h>
#include <tessera/data/source.h>
#include <tessera/evaluation/task.h>

namespace tessera {

/// Which samples of a source are one: none, those that name the same image file, or also those whose images have equal bytes, for which all
/// images are read (one_sample_per_image()).
enum class Joined { none, same_file, same_bytes };

/// The data that a task's settings name. Every rank can open them.
struct SourceOrder {
  std::string key;                               // the setting's path ("zero_shot.source")
  std::optional<config::ModuleSettings> choice;  // unset: the run's source
  bool train = false;                            // whether the run's source means its training data
  Joined joined = Joined::none;
  std::optional<OptionSettings> options = {};  // set: the images of this benchmark instead
};

/// Opens a task's data. If the order names no source, returns the run's source in `context`. Throws UserError if there is neither, or if
/// images of a stream are to be compared by their bytes.
std::shared_ptr<const Source> open_source(const SourceOrder& order, const EvaluationContext& context);

/// Returns an order as text for other ranks, and reads such a text back.
std::string to_text(const SourceOrder& order);
SourceOrder source_order_of(const std::string& text);

}  // namespace tessera
