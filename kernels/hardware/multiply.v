// The multipliers: arrays in which a row of full adders takes in one partial product at a time. They leave
// two rows, sum + carry * 2^(B-1). Where more is done to a product than adding it, a carry travels through
// one last row; else the two rows are added with those of all other lanes (carry_save.v).

(* keep_hierarchy *)
module multiply_unsigned #(
    parameter A = 8,
    parameter B = 8
) (
    input [A-1:0] a,
    input [B-1:0] b,
    output [A+B-1:0] product
);
  wire [A+B-2:0] sum;
  wire [A-1:0] carry;

  partial_products #(.A(A), .B(B)) rows (
      .a(a),
      .b(b),
      .sum(sum),
      .carry(carry)
  );
  assign product[B-2:0] = sum[B-2:0];
  ripple #(.WIDTH(A)) add (
      .a(sum[A+B-2:B-1]),
      .b(carry),
      .sum(product[A+B-1:B-1])
  );
endmodule

// An adder along which the carry travels bit by bit: the smallest there is, beside a shifter that waits for
// the largest exponent longer than for this.
module ripple #(
    parameter WIDTH = 8
) (
    input [WIDTH-1:0] a,
    input [WIDTH-1:0] b,
    output [WIDTH:0] sum
);
`ifdef SYNTHESIS
  wire [WIDTH:0] carries;
  assign carries[0] = 1'b0;
  assign sum[WIDTH] = carries[WIDTH];

  genvar i;
  generate
    for (i = 0; i < WIDTH; i = i + 1) begin : column
      full_adder add (
          .a(a[i]),
          .b(b[i]),
          .c(carries[i]),
          .carry(carries[i+1]),
          .sum(sum[i])
      );
    end
  endgenerate
`else
  assign sum = a + b;
`endif
endmodule

(* keep_hierarchy *)
module multiply_rows #(
    parameter A = 7,
    parameter B = 7
) (
    input [A-1:0] a,
    input [B-1:0] b,
    output [A+B-2:0] sum,
    output [A-1:0] carry
);
  partial_products #(.A(A), .B(B)) rows (
      .a(a),
      .b(b),
      .sum(sum),
      .carry(carry)
  );
endmodule

// Two's complement. A sign bit weighs minus a power of two; its partial products are inverted instead of
// taken away (Baugh and Wooley), which makes the product 2^(2*WIDTH-1) - 2^WIDTH too large and
// both rows unsigned.
(* keep_hierarchy *)
module multiply_signed #(
    parameter WIDTH = 8
) (
    input [WIDTH-1:0] a,
    input [WIDTH-1:0] b,
    output [2*WIDTH-2:0] sum,
    output [WIDTH-1:0] carry
);
  partial_products #(.A(WIDTH), .B(WIDTH), .SIGNED(1)) rows (
      .a(a),
      .b(b),
      .sum(sum),
      .carry(carry)
  );
endmodule

module partial_products #(
    parameter A = 8,
    parameter B = 8,
    parameter SIGNED = 0
) (
    input [A-1:0] a,
    input [B-1:0] b,
    output [A+B-2:0] sum,
    output [A-1:0] carry
);
  localparam WIDTH = A + B - 1;
  localparam [A-1:0] TOP = SIGNED << (A - 1);
  wire [B*WIDTH-1:0] rows;
  wire [(B-1)*WIDTH-1:0] sums, carries;
  assign sums[0+:WIDTH] = rows[0+:WIDTH];
  assign carries[0+:WIDTH] = rows[WIDTH+:WIDTH];
  assign sum = sums[(B-2)*WIDTH+:WIDTH];
  assign carry = carries[(B-1)*WIDTH-1-:A];

  genvar i;
  generate
    for (i = 0; i < B; i = i + 1) begin : row
      localparam [A-1:0] INVERTED = i == B - 1 ? {A{SIGNED != 0}} ^ TOP : TOP;
      wire [A-1:0] bits = (a & {A{b[i]}}) ^ INVERTED;
      assign rows[i*WIDTH+:WIDTH] = {{B{1'b0}}, bits} << i;
    end
    for (i = 1; i < B - 1; i = i + 1) begin : level
      three_to_two #(.WIDTH(WIDTH)) add (
          .a(rows[(i+1)*WIDTH+:WIDTH]),
          .b(sums[(i-1)*WIDTH+:WIDTH]),
          .c(carries[(i-1)*WIDTH+:WIDTH]),
          .sum(sums[i*WIDTH+:WIDTH]),
          .carry(carries[i*WIDTH+:WIDTH])
      );
    end
  endgenerate
endmodule

// A number with its sign beside it, every bit inverted where it is negative (see sum_magnitudes).
(* keep_hierarchy *)
module apply_sign #(
    parameter WIDTH = 16
) (
    input negative,
    input [WIDTH-1:0] magnitude,
    output [WIDTH-1:0] row
);
  assign row = magnitude ^ {WIDTH{negative}};
endmodule
