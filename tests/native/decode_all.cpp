// Every pair of mantissa and scale through the decode header, for `tests/test_mxint8_decode.py`.
#include "../../kernels/mxint8_decode.h"

extern "C" void decode_all(unsigned short* bits, float* values) {
  for (int scale = 0; scale < 256; ++scale)
    for (int mantissa = -128; mantissa < 128; ++mantissa) {
      const int at = 256 * scale + mantissa + 128;
      const auto m = static_cast<signed char>(mantissa);
      const auto s = static_cast<unsigned char>(scale);
      bits[at] = madl::mxint8_to_bf16(m, s);
      values[at] = madl::mxint8_value(m, madl::mxint8_step(s));
    }
}
