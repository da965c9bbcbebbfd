#pragma once

#include <vector>

#include "src/data/formats/row_filter.h"

namespace tessera {

/// Mixed into an IndexedSource that can read the side fields of its samples without reading their images.
class FieldSource {
 public:
  virtual ~FieldSource() = default;
  /// Returns a filter's verdict on each sample, in order. Throws UserError if the filter uses a field that no sample can have.
  virtual std::vector<FilterVerdict> judge(const RowFilter& filter) const = 0;
};

}  // namespace tessera
