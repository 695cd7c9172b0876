// MXFP and block log: numbers with exponents under a shared scale. The scale is added once a block, but
// inside the block every lane still has an exponent of its own. BIASES says what the shared bits
// are: 0 an E8M0 scale, 1 a bias in two's complement, which makes values smaller: 127 less the
// bias is an exponent as E8M0 has it, and takes no more than inverters.

module dot_mxfloat #(
    parameter LANES = 32,
    parameter EXPONENT = 4,
    parameter MANTISSA = 3,
    parameter ALIGNED = 1,
    parameter SPECIALS = 1,
    parameter BIASES = 0,
    parameter BLOCK = 32,
    parameter GUARD = 8,
    parameter BLOCK_GUARD = 0,
    parameter OFFSET = 282
) (
    input [LANES*(1+EXPONENT+MANTISSA)-1:0] a,
    input [LANES*(1+EXPONENT+MANTISSA)-1:0] b,
    input [LANES/BLOCK*8-1:0] a_scale,
    input [LANES/BLOCK*8-1:0] b_scale,
    input [31:0] acc,
    output [31:0] result
);
  localparam BLOCKS = LANES / BLOCK;
  localparam CODE = 1 + EXPONENT + MANTISSA;
  localparam SUM = (MANTISSA ? 2 * MANTISSA + 2 : 1) + GUARD + 1 + $clog2(BLOCK);
  localparam [7:0] INVERTED = BIASES ? 8'h7f : 8'h00;
  wire [BLOCKS*SUM-1:0] sums;
  wire [BLOCKS*10-1:0] exponents;
  wire [BLOCKS-1:0] element_nan, scale_nan;

  genvar i;
  generate
    for (i = 0; i < BLOCKS; i = i + 1) begin : block
      wire [EXPONENT:0] inside;
      wire [8:0] scale;
      float_lanes #(
          .LANES(BLOCK),
          .EXPONENT(EXPONENT),
          .MANTISSA(MANTISSA),
          .ALIGNED(ALIGNED),
          .SPECIALS(SPECIALS),
          .GUARD(GUARD)
      ) lanes (
          .a(a[i*BLOCK*CODE+:BLOCK*CODE]),
          .b(b[i*BLOCK*CODE+:BLOCK*CODE]),
          .sum(sums[i*SUM+:SUM]),
          .exponent(inside),
          .nan(element_nan[i])
      );
      add_scales add (
          .a(a_scale[i*8+:8] ^ INVERTED),
          .b(b_scale[i*8+:8] ^ INVERTED),
          .exponent(scale),
          .nan(scale_nan[i])
      );
      assign exponents[i*10+:10] = inside + scale;
    end
  endgenerate

  finish #(
      .BLOCKS(BLOCKS),
      .WIDTH(SUM),
      .EXPONENT(10),
      .GUARD(BLOCK_GUARD),
      .OFFSET(OFFSET)
  ) finish (
      .sums(sums),
      .exponents(exponents),
      .nan(|element_nan | (!BIASES && |scale_nan)),
      .acc(acc),
      .result(result)
  );
endmodule
