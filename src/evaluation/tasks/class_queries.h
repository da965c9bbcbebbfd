#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

/// The names of mask classes; each name is a text query. A class can have several names ("person, man, woman"). It can also have
/// a display name, which is not a text query ("background: sky, wall").
struct ClassQueries {
  std::vector<std::string> classes;    // display name of each class: the text before the colon, or the first name
  std::vector<std::string> names;      // all names, class by class
  std::vector<std::int64_t> class_of;  // the class of each name
};

/// Parses the lines of a setting. `setting` is its name ("segmentation.classes"), for messages. Throws UserError for an empty name.
ClassQueries class_queries(const std::vector<std::string>& lines, const std::string& setting);

}  // namespace tessera
