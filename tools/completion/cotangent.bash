# Completion of cotangent for bash. Commands, options and recipes are asked of the command itself.
_cotangent() {
    local cotangent=${COMP_WORDS[0]} current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]} words=
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="$("$cotangent" --help 2>/dev/null | sed -n 's/^  \([a-z]*\) .*/\1/p') --help --version"
    else
        case $command:$previous:$current in
        *:--device:*) words="cpu cuda webgpu" ;;
        train:--data:* | train:--out:* | eval:--data:*) ;;
        train:--show:*) words=$("$cotangent" train --list 2>/dev/null | sed 's/ .*//') ;;
        *:*:-*) words=$("$cotangent" "$command" --help 2>/dev/null | grep -o -- '--[a-z][a-z0-9-]*' | sort -u) ;;
        train:*) [ "$COMP_CWORD" -eq 2 ] && words=$("$cotangent" train --list 2>/dev/null | sed 's/ .*//') ;;
        layers:*) words=$("$cotangent" layers 2>/dev/null | sed 's/ .*//') ;;
        ops:* | apply:* | check:*) words=$("$cotangent" ops 2>/dev/null | sed 's/ .*//') ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}
# File names serve where nothing else fits.
complete -o default -o bashdefault -F _cotangent cotangent
