#include "kernels/flops_regularizer/flops_regularizer.h"

#include "kernels/argument_check.h"

namespace tessera::kernels {
namespace {

constexpr const char* kName = "flops_regularizer";

}  // namespace

Status check(const FlopsForward& arguments) {
  const bool means = arguments.column_mean != nullptr || arguments.loss != nullptr;
  ArgumentCheck found(kName);
  found.at_least("rows", means ? 1 : 0, arguments.rows).at_least("columns", 1, arguments.columns);
  if (means) found.present("column_mean", arguments.column_mean).present("loss", arguments.loss);
  if (!means) found.present("column_sum", arguments.column_sum);
  if (arguments.rows > 0) found.present("encoding", arguments.encoding);
  return found.status();
}

Status check(const FlopsBackward& arguments) {
  ArgumentCheck found(kName);
  found.at_least("rows", 0, arguments.rows).at_least("columns", 1, arguments.columns);
  found.at_least("written_rows", 0, arguments.written_rows);
  if (!found.ok() || arguments.rows == 0 || arguments.written_rows == 0) return found.status();
  found.present("column_mean", arguments.column_mean).present("grad_loss", arguments.grad_loss);
  found.present("grad_encoding", arguments.grad_encoding);
  if (arguments.written_rows > 1) found.long_enough("grad_encoding", arguments.row_stride, arguments.columns);
  return found.status();
}

}  // namespace tessera::kernels
