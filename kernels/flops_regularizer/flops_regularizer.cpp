#include "kernels/flops_regularizer/flops_regularizer.h"

#include <string>

namespace tessera::kernels {
namespace {

Status at_least(const char* name, std::int64_t least, std::int64_t value) {
  if (value >= least) return {};
  return Status::failure(std::string("flops_regularizer: ") + name + " must be at least " + std::to_string(least) +
                         ", but is " + std::to_string(value));
}

Status present(const char* name, const void* pointer) {
  return pointer != nullptr ? Status()
                            : Status::failure(std::string("flops_regularizer: ") + name + " is a null pointer");
}

Status long_enough(const char* name, std::int64_t rows, std::int64_t stride, std::int64_t columns) {
  if (rows <= 1 || stride >= columns) return {};
  return Status::failure(std::string("flops_regularizer: the row stride of ") + name + " is " + std::to_string(stride) +
                         ", shorter than a row of " + std::to_string(columns) + " elements");
}

}  // namespace

Status check(const FlopsColumnSums& arguments) {
  if (Status status = at_least("rows", 0, arguments.rows); !status.ok()) return status;
  if (Status status = at_least("columns", 1, arguments.columns); !status.ok()) return status;
  if (Status status = present("column_sum", arguments.column_sum); !status.ok()) return status;
  return arguments.rows == 0 ? Status() : present("encoding", arguments.encoding);
}

Status check(const FlopsFromSums& arguments) {
  if (Status status = at_least("total_rows", 1, arguments.total_rows); !status.ok()) return status;
  if (Status status = at_least("columns", 1, arguments.columns); !status.ok()) return status;
  if (Status status = present("column_sum", arguments.column_sum); !status.ok()) return status;
  if (Status status = present("column_mean", arguments.column_mean); !status.ok()) return status;
  return present("loss", arguments.loss);
}

Status check(const FlopsBackward& arguments) {
  if (Status status = at_least("rows", 0, arguments.rows); !status.ok()) return status;
  if (Status status = at_least("columns", 1, arguments.columns); !status.ok()) return status;
  if (arguments.rows == 0) return {};
  if (Status status = at_least("total_rows", arguments.rows, arguments.total_rows); !status.ok()) return status;
  if (Status status = present("column_mean", arguments.column_mean); !status.ok()) return status;
  if (Status status = present("grad_loss", arguments.grad_loss); !status.ok()) return status;
  if (Status status = present("grad_encoding", arguments.grad_encoding); !status.ok()) return status;
  return long_enough("grad_encoding", arguments.rows, arguments.row_stride, arguments.columns);
}

}  // namespace tessera::kernels
