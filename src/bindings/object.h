#pragma once

#include <memory>
#include <utility>

#include <ATen/ops/from_blob.h>
#include <torch/library.h>

namespace tessera {

template <class Object>
void destroy(void* object) {
  delete static_cast<Object*>(object);
}

/// Returns an empty tensor whose storage owns the object. Operators can return only tensors, numbers, texts and lists of these, so Python
/// holds such a handle for each C++ object (python/tessera/_library.py) and gives it to the operators that are the object's methods.
template <class Object>
at::Tensor handle_of(std::unique_ptr<Object> object) {
  Object* const owned = object.release();
  return at::for_blob(owned, {0}).context(owned, &destroy<Object>).options(at::kByte).make_tensor();
}

/// Returns the object of a handle, which lives as long as the handle. Throws c10::Error for any other tensor.
template <class Object>
Object& object_of(const at::Tensor& handle) {
  Object* const found = handle.has_storage() ? handle.storage().data_ptr().cast_context<Object>(&destroy<Object>) : nullptr;
  TORCH_CHECK(found != nullptr, "expected the handle of another C++ object");
  return *found;
}

/// Method<&Object::method>::call is the method as a function of a handle and the method's arguments.
template <auto method>
struct Method;

template <class Object, class Result, class... Arguments, Result (Object::*method)(Arguments...)>
struct Method<method> {
  static Result call(const at::Tensor& handle, Arguments... arguments) {
    return (object_of<Object>(handle).*method)(std::forward<Arguments>(arguments)...);
  }
};

template <class Object, class Result, class... Arguments, Result (Object::*method)(Arguments...) const>
struct Method<method> {
  static Result call(const at::Tensor& handle, Arguments... arguments) {
    return (object_of<Object>(handle).*method)(std::forward<Arguments>(arguments)...);
  }
};

/// Make<Object, Arguments...>::call is the constructor as a function that returns a handle.
template <class Object, class... Arguments>
struct Make {
  static at::Tensor call(Arguments... arguments) { return handle_of(std::make_unique<Object>(std::forward<Arguments>(arguments)...)); }
};

}  // namespace tessera
