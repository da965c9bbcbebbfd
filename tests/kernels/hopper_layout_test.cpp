// Compares the layouts of kernels/device/hopper_layout.h with those of CuTe, which NVIDIA's CUTLASS contains. Otherwise the kernels and
// their emulation could share a misunderstanding. Skipped without the headers (CMake's TESSERA_CUTLASS_INCLUDE).
#include "kernels/device/hopper_layout.h"

#include <gtest/gtest.h>

#if __has_include(<cute/atom/mma_traits_sm90_gmma.hpp>) && __has_include(<cuda/std/utility>)
#define TESSERA_HAS_CUTE
#include <cute/atom/mma_traits_sm90_gmma.hpp>
#include <cute/tensor.hpp>
#endif

namespace tessera::kernels::test {
namespace {

#if defined(TESSERA_HAS_CUTE)

using namespace cute;
using Element = bfloat16_t;

/// Compares where the operand's elements are, for a layout (side, 16) of CuTe, and the fields of CuTe's descriptor.
template <GMMA::Major kMajor, class Layout>
void expect_same_operand(const Layout& layout, Operand operand, Depth depth) {
  const auto plain = as_position_independent_swizzle_layout(layout);
  for (int side = 0; side < size<0>(layout); ++side) {
    for (int k = 0; k < 16; ++k) {
      ASSERT_EQ(element_address(operand, depth, static_cast<std::uint32_t>(side), static_cast<std::uint32_t>(k)), 2u * plain(side, k))
          << "side " << side << ", depth " << k;
    }
  }
  testing::internal::CaptureStdout();  // CuTe complains that the host has no addresses of shared memory, and takes 0
  const auto tensor = make_tensor(make_smem_ptr(static_cast<Element*>(nullptr)), layout);
  const GmmaDescriptor descriptor = GMMA::make_gmma_desc<kMajor>(tensor);
  testing::internal::GetCapturedStdout();
  EXPECT_EQ(operand.bits >> 32, descriptor.desc_ >> 32);
  const bool leading_matters = kMajor == GMMA::Major::MN ? size<0>(layout) > 64 || !is_tile(operand) : !is_tile(operand);
  if (leading_matters) {
    EXPECT_EQ(operand.bits >> 16 & 0x3fffu, descriptor.bitfield.leading_byte_offset_);
  }
}

TEST(HopperLayout, TilesAreThoseOfCute) {
  const auto rows = as_position_independent_swizzle_layout(GMMA::Layout_K_SW128_Atom<Element>{});
  const auto columns = as_position_independent_swizzle_layout(GMMA::Layout_MN_SW128_Atom<Element>{});
  for (int row = 0; row < 8; ++row) {
    for (int column = 0; column < kTileColumns; ++column) {
      EXPECT_EQ(tile_offset(row, column), 2 * rows(row, column));
      EXPECT_EQ(tile_offset(row, column), 2 * columns(column, row));
    }
  }
}

TEST(HopperLayout, OperandsAreThoseOfCute) {
  // Slices of 16 of the depth of larger tiles. The first one is along the rows of a tile of 80 rows; the others begin at other rows.
  const auto along = tile_to_shape(GMMA::Layout_K_SW128_Atom<Element>{}, Shape<_80, _64>{});
  expect_same_operand<GMMA::Major::K>(composition(along, Shape<_80, _16>{}), make_operand(0, 16, 1024, true), Depth::kAlongRows);
  const auto across = tile_to_shape(GMMA::Layout_MN_SW128_Atom<Element>{}, Shape<_64, _80>{});
  expect_same_operand<GMMA::Major::MN>(composition(across, make_layout(Shape<_64, _16>{}, Stride<_1, _64>{})),
                                       make_operand(0, 16, 1024, true), Depth::kAcrossRows);
  // Two tiles of 64 columns and 80 rows, one after the other.
  const auto two = tile_to_shape(GMMA::Layout_MN_SW128_Atom<Element>{}, Shape<_128, _80>{}, Step<_2, _1>{});
  expect_same_operand<GMMA::Major::MN>(composition(two, make_layout(Shape<_128, _16>{}, Stride<_1, _128>{})),
                                       make_operand(0, 80 * 128, 1024, true), Depth::kAcrossRows);
  // Blocks, with those along the side one after another, and with those along the depth one after another.
  const auto blocks = tile_to_shape(GMMA::Layout_K_INTER_Atom<Element>{}, Shape<_80, _16>{});
  expect_same_operand<GMMA::Major::K>(blocks, make_operand(0, 80 / 8 * 128, 128, false), Depth::kAlongRows);
  const auto blocks_across = tile_to_shape(GMMA::Layout_MN_INTER_Atom<Element>{}, Shape<_80, _16>{});
  expect_same_operand<GMMA::Major::MN>(blocks_across, make_operand(0, 80 / 8 * 128, 128, false), Depth::kAcrossRows);
  const auto depth_first = tile_to_shape(GMMA::Layout_MN_INTER_Atom<Element>{}, Shape<_80, _16>{}, Step<_2, _1>{});
  expect_same_operand<GMMA::Major::MN>(depth_first, make_operand(0, 128, 256, false), Depth::kAcrossRows);
}

TEST(HopperLayout, SumsAndOperandsInRegistersAreThoseOfCute) {
  const auto sums = SM90::GMMA::CLayout_64xN<80>{};
  const auto registers = SM90::GMMA::ALayout_64x16{};
  for (int thread = 0; thread < 128; ++thread) {
    for (int i = 0; i < 40; ++i) EXPECT_EQ(sum_row(thread, i) + 64 * sum_column(thread, i), sums(thread, i));
    for (int i = 0; i < 8; ++i) EXPECT_EQ(register_row(thread, i) + 64 * register_depth(thread, i), registers(thread, i));
  }
}

#else

TEST(HopperLayout, AreThoseOfCute) {
  GTEST_SKIP() << "the build has no headers of CUTLASS and CUDA (TESSERA_CUTLASS_INCLUDE)";
}

#endif

}  // namespace
}  // namespace tessera::kernels::test
