// Elements under scales that are floats themselves: NVFP4 (E4M3 for 16 values), groups of INT4 (FP16 for
// 32). Within a block the sum is exact, as under a power of two; then it is multiplied by the product of
// both scales. EXPONENT 0 says integers in two's complement of MANTISSA + 1 bits; else elements are
// floats, each product shifted to its place within RANGE. What scales a whole tensor is applied to
// finished sums, outside.

module dot_scaled #(
    parameter LANES = 32,
    parameter EXPONENT = 2,
    parameter MANTISSA = 1,
    parameter RANGE = 4,
    parameter SCALE_EXPONENT = 4,
    parameter SCALE_MANTISSA = 3,
    parameter SCALE_SPECIALS = 1,
    parameter BLOCK = 16,
    parameter GUARD = 0,
    parameter OFFSET = 22
) (
    input [LANES*(1+EXPONENT+MANTISSA)-1:0] a,
    input [LANES*(1+EXPONENT+MANTISSA)-1:0] b,
    input [LANES/BLOCK*(1+SCALE_EXPONENT+SCALE_MANTISSA)-1:0] a_scale,
    input [LANES/BLOCK*(1+SCALE_EXPONENT+SCALE_MANTISSA)-1:0] b_scale,
    input [31:0] acc,
    output [31:0] result
);
  localparam BLOCKS = LANES / BLOCK;
  localparam CODE = 1 + EXPONENT + MANTISSA;
  localparam SCALE = 1 + SCALE_EXPONENT + SCALE_MANTISSA;
  localparam SUM = (EXPONENT ? 2 * MANTISSA + 3 + RANGE : 2 * CODE) + $clog2(BLOCK);
  localparam WIDTH = SUM + 2 * SCALE_MANTISSA + 2;
  wire [BLOCKS*WIDTH-1:0] sums;
  wire [BLOCKS*(SCALE_EXPONENT+1)-1:0] exponents;
  wire [BLOCKS-1:0] nan;

  genvar i;
  generate
    for (i = 0; i < BLOCKS; i = i + 1) begin : block
      wire [SUM-1:0] sum;
      if (EXPONENT) begin : float
        float_lanes #(
            .LANES(BLOCK),
            .EXPONENT(EXPONENT),
            .MANTISSA(MANTISSA),
            .ALIGNED(0),
            .SPECIALS(0),
            .GUARD(RANGE)
        ) lanes (
            .a(a[i*BLOCK*CODE+:BLOCK*CODE]),
            .b(b[i*BLOCK*CODE+:BLOCK*CODE]),
            .sum(sum),
            .exponent(),
            .nan()
        );
      end else begin : integer_
        integer_lanes #(.LANES(BLOCK), .WIDTH(CODE)) lanes (
            .a(a[i*BLOCK*CODE+:BLOCK*CODE]),
            .b(b[i*BLOCK*CODE+:BLOCK*CODE]),
            .addend({SUM{1'b0}}),
            .total(sum)
        );
      end
      apply_scales #(
          .WIDTH(SUM),
          .EXPONENT(SCALE_EXPONENT),
          .MANTISSA(SCALE_MANTISSA),
          .SPECIALS(SCALE_SPECIALS)
      ) scale (
          .sum(sum),
          .a(a_scale[i*SCALE+:SCALE-1]),
          .b(b_scale[i*SCALE+:SCALE-1]),
          .scaled(sums[i*WIDTH+:WIDTH]),
          .exponent(exponents[i*(SCALE_EXPONENT+1)+:SCALE_EXPONENT+1]),
          .nan(nan[i])
      );
    end
  endgenerate

  finish #(
      .BLOCKS(BLOCKS),
      .WIDTH(WIDTH),
      .EXPONENT(SCALE_EXPONENT + 1),
      .GUARD(GUARD),
      .OFFSET(OFFSET)
  ) finish (
      .sums(sums),
      .exponents(exponents),
      .nan(|nan),
      .acc(acc),
      .result(result)
  );
endmodule

// A block's sum times the product of its two scales, floats without their sign. With its highest bit
// inverted the sum is unsigned and larger by 2^(WIDTH-1); so the product is too large by that many factors.
(* keep_hierarchy *)
module apply_scales #(
    parameter WIDTH = 13,
    parameter EXPONENT = 4,
    parameter MANTISSA = 3,
    parameter SPECIALS = 1,
    parameter FACTOR = 2 * MANTISSA + 2
) (
    input [WIDTH-1:0] sum,
    input [EXPONENT+MANTISSA-1:0] a,
    input [EXPONENT+MANTISSA-1:0] b,
    output [WIDTH+FACTOR-1:0] scaled,
    output [EXPONENT:0] exponent,
    output nan
);
  wire [FACTOR-1:0] factor;
  wire [WIDTH+FACTOR-1:0] product;
  wire positive;

  float_product #(.EXPONENT(EXPONENT), .MANTISSA(MANTISSA), .SPECIALS(SPECIALS)) scales (
      .a({1'b0, a}),
      .b({1'b0, b}),
      .term(factor),
      .negative(positive),
      .exponent(exponent),
      .nan(nan)
  );
  multiply_unsigned #(.A(WIDTH), .B(FACTOR)) multiply (
      .a({~sum[WIDTH-1], sum[WIDTH-2:0]}),
      .b(factor),
      .product(product)
  );
  assign scaled[WIDTH-2:0] = product[WIDTH-2:0];
  assign scaled[WIDTH+FACTOR-1:WIDTH-1] = product[WIDTH+FACTOR-1:WIDTH-1] - factor;
endmodule
