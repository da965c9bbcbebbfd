#pragma once

#include <vector>

#include "src/data/formats/row_filter.h"

namespace tessera {

/// Mixed into an IndexedSource that knows the side fields of its samples without reading their pictures.
class FieldSource {
 public:
  virtual ~FieldSource() = default;
  /// What a filter says of each sample, in their order. Throws UserError: a field that no sample can have.
  virtual std::vector<FilterVerdict> judge(const RowFilter& filter) const = 0;
};

}  // namespace tessera
