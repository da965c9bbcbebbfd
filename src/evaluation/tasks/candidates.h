#pragma once

#include <string>
#include <vector>

#include "src/evaluation/tasks/pass.h"
#include <tessera/data/source.h>
#include <tessera/evaluation/tasks/task_settings.h>

namespace tessera {

/// The classes that a picture's class is chosen from.
struct Candidates {
  std::string task;  // the registered name, for messages
  std::vector<std::string> names;
  /// The place in `names` of each class that labels know; -1: the background of masks, which is no class of pictures
  /// and gets no prompt; kNotAsked: a class of the source that the task does not list.
  std::vector<std::int64_t> place;
  std::vector<std::string> source_names;  // the source's own, for messages

  static constexpr std::int64_t kNotAsked = -2;

  /// The sample's class among `names`, -1 for the background. Throws TaskMisfit for a label without a name, and for a
  /// name that is not among them.
  std::int64_t label_of(const Sample& sample, const Source& source) const;

  /// A label that is not the background's: pictures of nothing else are of no class, and are skipped. Outlived by both.
  Required asked(const Source& source) const;
};

/// A class label: a number, or a name where the source lists none.
Required labeled_or_named();

/// The classes of a task's `classes` setting, or the source's. Where both list names and a name stands at different
/// places, the task's means the source's class of that name; else the task's are other words for the source's, in its
/// order. Throws TaskMisfit when there are none.
Candidates candidates_for(const TextList& classes, const Source& source, const std::string& task);

}  // namespace tessera
