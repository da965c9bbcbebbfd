#include "kernels/adamw/adamw.h"

#include <algorithm>

#include "kernels/adamw/table.h"
#include "kernels/argument_check.h"

namespace tessera::kernels {

AdamWTable adamw_table(const std::vector<AdamWTensor>& tensors) {
  std::vector<AdamWChunk> chunks;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    for (std::int64_t begin = 0; begin < tensors[i].elements; begin += kAdamWChunk)
      chunks.push_back({static_cast<std::int32_t>(i), static_cast<std::int32_t>(begin / kAdamWChunk)});
  AdamWTable table{static_cast<std::int64_t>(tensors.size()), static_cast<std::int64_t>(chunks.size()), {}};
  table.bytes.resize(adamw_chunks_offset(table.tensors) + chunks.size() * sizeof(AdamWChunk));
  const AdamWParts parts = adamw_parts(table.bytes.data(), table.tensors);
  std::copy(tensors.begin(), tensors.end(), parts.tensors);
  std::copy(chunks.begin(), chunks.end(), parts.chunks);
  return table;
}

Status check(const AdamWUpdate& arguments) {
  ArgumentCheck found("adamw");
  found.at_least("tensors", 0, arguments.tensors).at_least("chunks", 0, arguments.chunks);
  if (!found.ok() || arguments.chunks == 0) return found.status();
  found.present("table", arguments.table).present("gradients", arguments.gradients);
  found.present("learning_rate", arguments.learning_rate).present("weight_decay", arguments.weight_decay);
  found.present("count", arguments.count);
  for (std::int64_t i = 0; found.ok() && i < arguments.tensors; ++i)
    found.present(("gradient " + std::to_string(i)).c_str(), arguments.gradients[i]);
  return found.status();
}

}  // namespace tessera::kernels
