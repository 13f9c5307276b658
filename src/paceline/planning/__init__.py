"""`paceline plan`: the planner's command line, tables and page. What it answers is computed in `costs`."""
