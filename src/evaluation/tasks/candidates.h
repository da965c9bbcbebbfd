#pragma once

#include <string>
#include <vector>

#include <tessera/data/source.h>
#include <tessera/evaluation/tasks/task_settings.h>

namespace tessera {

/// The classes that a picture's class is chosen from.
struct Candidates {
  std::string task;  // the registered name, for messages
  std::vector<std::string> names;
  /// The place in `names` of each class that labels know; -1: the background of masks, which is no class of pictures
  /// and gets no prompt.
  std::vector<std::int64_t> place;

  /// The sample's class among `names`, -1 for the background. Throws UserError for a label without a name.
  std::int64_t label_of(const Sample& sample, const Source& source) const;
};

/// The classes of a task's `classes` setting, or the source's. Throws UserError when there are none.
Candidates candidates_for(const TextList& classes, const Source& source, const std::string& task);

}  // namespace tessera
