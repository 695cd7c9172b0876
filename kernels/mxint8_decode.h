// MXINT8: the one definition of an element's value, for the host and for the device, no includes.
//
// A value is mantissa * 2^-6 * 2^(scale - 127): a two's complement mantissa with six fraction bits
// under an E8M0 scale, whose 255 is NaN. Every one of them is a bfloat16: eight significant bits
// are enough, and the smallest, 2^-133, is bfloat16's smallest subnormal. So nothing here rounds,
// and the upper half of the float32 product is the bfloat16. One code of 65,536 has no finite
// value there: mantissa -128 under scale 254 is -2^128, which IEEE arithmetic makes -infinity.
//
// Source: OCP Microscaling Formats (MX) v1.0, sections 5.3.4 and 5.4.1.
// Invariants: exact on all 65,536 pairs, mantissa -128 and subnormal results (scale 0 ... 6) too.
// Not handled: flushing subnormals (-ffast-math, -ftz=true, torch.set_flush_denormal), which turns
// some of the smallest values into zero. Which of the NaNs comes out is the machine's choice.
#pragma once

#if defined(__CUDACC__)
#define MADL_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define MADL_HOST_DEVICE inline
#endif

namespace madl {

static_assert(sizeof(unsigned int) == 4 && sizeof(unsigned short) == 2, "32 and 16 bits");

// Bits by memcpy, which NVRTC lacks: a pointer cast breaks strict aliasing.
MADL_HOST_DEVICE float bits_to_float(unsigned int bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
#endif
}

MADL_HOST_DEVICE unsigned int float_to_bits(float value) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(value);
#else
  unsigned int bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
#endif
}

// [codec]
// What one step of the mantissa is worth, 2^(scale - 133): once per group.
MADL_HOST_DEVICE float mxint8_step(unsigned char scale) {
  const unsigned int e = scale;
  const unsigned int normal = (e - 6u) << 23;             // 2^(e - 133) from e = 7 on
  const unsigned int subnormal = 1u << ((e & 7u) + 16u);    // below, a multiple of 2^-149
  const unsigned int finite = e > 6u ? normal : subnormal;
  return bits_to_float(e == 255u ? 0x7fc00000u : finite);
}

// One element under its group's step, as float32: exact.
MADL_HOST_DEVICE float mxint8_value(signed char mantissa, float step) {
  return static_cast<float>(mantissa) * step;
}

// One element under its group's step, as the bits of a bfloat16: exact, so the cut loses nothing.
MADL_HOST_DEVICE unsigned short mxint8_element(signed char mantissa, float step) {
  return static_cast<unsigned short>(float_to_bits(mxint8_value(mantissa, step)) >> 16);
}
// [/codec]

// The whole definition in one call.
MADL_HOST_DEVICE unsigned short mxint8_to_bf16(signed char mantissa, unsigned char scale) {
  return mxint8_element(mantissa, mxint8_step(scale));
}

}  // namespace madl
