#pragma once

#include <string>
#include <vector>

#include "src/evaluation/tasks/pass.h"
#include <tessera/data/source.h>
#include <tessera/evaluation/tasks/task_settings.h>

namespace tessera {

/// The classes among which an image is classified.
struct Candidates {
  std::string task;  // the registered name, for messages
  std::vector<std::string> names;
  /// The index in `names` of each label's class. -1 is the background of masks, which is not a class of images and has no
  /// prompt. kNotAsked is a class of the source that the task does not list.
  std::vector<std::int64_t> place;
  std::vector<std::string> source_names;  // the source's own, for messages

  static constexpr std::int64_t kNotAsked = -2;

  /// Returns the index of the sample's class in `names`, or -1 for the background. Throws TaskMisfit for a label without a name
  /// and for a name that is not in `names`.
  std::int64_t label_of(const Sample& sample, const Source& source) const;

  /// Requires a label other than the background's, so that images of background only are skipped. This object and `source` must
  /// outlive the result.
  Required asked(const Source& source) const;
};

/// Requires a class label: a number, or a name if the source has no list of classes.
Required labeled_or_named();

/// Returns the classes of a task's `classes` setting, or the source's. If both list names and a name has different positions
/// in the two lists, classes are matched by name; otherwise the task's names replace the source's, in the source's order.
/// Throws TaskMisfit if there are none.
Candidates candidates_for(const TextList& classes, const Source& source, const std::string& task);

}  // namespace tessera
