// The largest of TERMS unsigned numbers.

module maximum_tree #(
    parameter TERMS = 32,
    parameter WIDTH = 9
) (
    input [TERMS*WIDTH-1:0] terms,
    output [WIDTH-1:0] maximum
);
  localparam LEFT = TERMS / 2;
  localparam RIGHT = TERMS - LEFT;

  generate
    if (TERMS == 1) begin : leaf
      assign maximum = terms;
    end else begin : node
      wire [WIDTH-1:0] left;
      wire [WIDTH-1:0] right;
      maximum_tree #(.TERMS(LEFT), .WIDTH(WIDTH)) left_half (
          .terms(terms[LEFT*WIDTH-1:0]),
          .maximum(left)
      );
      maximum_tree #(.TERMS(RIGHT), .WIDTH(WIDTH)) right_half (
          .terms(terms[TERMS*WIDTH-1:LEFT*WIDTH]),
          .maximum(right)
      );
      assign maximum = left > right ? left : right;
    end
  endgenerate
endmodule
