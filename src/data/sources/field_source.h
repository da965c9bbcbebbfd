#pragma once

#include <vector>

#include "src/data/formats/row_filter.h"

namespace tessera {

/// Base class of indexed sources that can read the side fields of their samples without reading the images.
class FieldSource {
 public:
  virtual ~FieldSource() = default;
  /// Returns a filter's verdict on each sample, in order. Throws UserError if the filter uses a field that no sample can have.
  virtual std::vector<FilterVerdict> judge(const RowFilter& filter) const = 0;
};

}  // namespace tessera
