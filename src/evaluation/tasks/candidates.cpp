#include "src/evaluation/tasks/candidates.h"

#include "src/evaluation/tasks/pass.h"

namespace tessera {

std::int64_t Candidates::label_of(const Sample& sample, const Source& source) const {
  const std::size_t known = place.size();
  if (sample.label >= static_cast<std::int64_t>(known))
    user_error(task, ": ", source.describe(), " has a sample of class ", sample.label, ", but there are only ", known,
               " class names (0 to ", known - 1, ")");
  return place[static_cast<std::size_t>(sample.label)];
}

Candidates candidates_for(const TextList& classes, const Source& source, const std::string& task) {
  const std::int64_t background = classes.items.empty() ? source.background_class() : -1;
  const std::vector<std::string> names = class_names_for(classes, source, task);
  Candidates out{.task = task};
  for (std::size_t i = 0; i < names.size(); ++i) {
    const bool left_out = static_cast<std::int64_t>(i) == background;
    out.place.push_back(left_out ? -1 : std::ssize(out.names));
    if (!left_out) out.names.push_back(names[i]);
  }
  return out;
}

}  // namespace tessera
