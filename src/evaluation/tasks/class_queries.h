#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

/// The texts that classes of masks are asked for by. A class may have several names: "person, man, woman"; and be called
/// something that it is not asked for by: "background: sky, wall".
struct ClassQueries {
  std::vector<std::string> classes;    // what each is called: what stands before the colon, or its first name
  std::vector<std::string> names;      // all names, class by class
  std::vector<std::int64_t> class_of;  // the class of each name
};

/// `setting` is where the lines stand ("segmentation.classes"). Throws UserError for an empty name.
ClassQueries class_queries(const std::vector<std::string>& lines, const std::string& setting);

}  // namespace tessera
